// One run: phases, reason, gang, network, budget, attempts, events, logs, specification.
import { Attempts } from "./attempts.js";
import { Events } from "./events.js";
import { Gang } from "./gang.js";
import { Logs } from "./logs.js";
import { Orders } from "./orders.js";
import { Chip, FINAL, Span, StartsBy, When, copy } from "./parts.js";

export const Run = {
  components: { Attempts, Chip, Events, Gang, Logs, Orders, Span, StartsBy, When },
  inject: ["act", "link", "can"],
  props: { shown: Object },
  data() {
    return { logOf: null, copied: false };
  },
  computed: {
    run() {
      return this.shown.run;
    },
    name() {
      return this.run.metadata.name;
    },
    labels() {
      return Object.entries(this.run.metadata.labels);
    },
    last() {
      return this.shown.attempts.at(-1);
    },
    placed() {
      return this.shown.attempts.some((attempt) => attempt.placed_at);
    },
    // The phases of the latest attempt, each from when until when; `null` has not begun.
    phases() {
      const { run, last } = this;
      const ended = run.finished_at || last?.ended_at || null;
      const over = FINAL.includes(run.state);
      if (this.shown.alone) return this.phasesAlone(over);
      const waits = last ? last.entered_at : run.submitted_at;
      const again = last && last.attempt > 1;
      const list = [["Submitted", run.submitted_at, run.submitted_at]];
      list.push([again ? "Waiting again" : "Waiting", waits, last?.placed_at || ended]);
      if (last?.placed_at || !ended) list.push(["Starting together", last?.placed_at, last?.running_at || ended]);
      if (last?.running_at || !ended) list.push(["Running", last?.running_at, ended]);
      if (over) list.push([run.state, run.finished_at, run.finished_at]);
      else if (last?.ended_at) list.push(["Waiting to run again", last.ended_at, null]);
      return list.map(([title, from, to]) => {
        const now = !over && from && !to;
        return { title, from, to, state: from ? (now ? "now" : "done") : "ahead" };
      });
    },
    pips() {
      const { budget, left } = this.run.restarts;
      return budget === null || budget > 20 ? [] : Array.from({ length: budget }, (_, i) => i < left);
    },
    spec() {
      return JSON.stringify(this.run.spec, null, 2);
    },
  },
  methods: {
    // Where workers start one by one the run has no attempts of its own: it runs from its first worker's start on.
    phasesAlone(over) {
      const { submitted_at, started_at, finished_at, state } = this.run;
      const list = [["Submitted", submitted_at, submitted_at], ["Waiting", submitted_at, started_at || finished_at]];
      if (started_at || !over) list.push(["Running", started_at, finished_at]);
      if (over) list.push([state, finished_at, finished_at]);
      return list.map(([title, from, to]) => ({ title, from, to, state: from ? (over || to ? "done" : "now") : "ahead" }));
    },
    gone() {
      location.assign(this.link("runs"));
    },
    async copySpec() {
      await copy(JSON.stringify({ metadata: { name: this.name }, spec: await this.act("spec") }, null, 2));
      this.copied = true;
    },
    readLog(worker) {
      this.logOf = { rank: worker };
      this.$nextTick(() => document.getElementById("logs")?.scrollIntoView({ block: "start" }));
    },
  },
  template: `
    <nav class="crumbs" aria-label="Where this is"><a :href="link('runs')">Runs</a> / {{ run.cluster }} /</nav>
    <div class="head">
      <h1>{{ name }}</h1>
      <chip :state="run.state"></chip>
      <span v-if="run.held" class="label">held</span><span v-if="shown.deleting" class="label">being deleted</span>
      <span class="grow"></span>
      <orders :run="run" @deleted="gone"></orders>
    </div>
    <p v-if="!shown.latest" class="note">A newer run has this name. <a :href="link('runs', run.cluster, name)">Show it</a>.</p>
    <p class="big" role="status" aria-live="polite">{{ run.reason || run.state }}</p>

    <ol class="phases" aria-label="Phases of the latest attempt">
      <li v-for="phase in phases" :key="phase.title" :class="phase.state" :aria-current="phase.state === 'now' ? 'step' : null">
        <b>{{ phase.title }}</b>
        <span v-if="phase.from"><when :at="phase.from" plain></when>
          <template v-if="phase.from !== phase.to"> · <span-of :from="phase.from" :to="phase.to"></span-of></template></span>
        <span v-else class="soft">not yet</span>
      </li>
    </ol>

    <section v-if="shown.explained && (shown.explained.blockers.length || shown.explained.waits_because)" class="card">
      <h2>Why it waits</h2>
      <p v-if="shown.explained.waits_because">{{ shown.explained.waits_because }}</p>
      <ul><li v-for="one in shown.explained.blockers" :key="one">{{ one }}</li></ul>
      <p class="soft"><template v-if="shown.explained.position">Place {{ shown.explained.position }} in the queue. </template>
        <template v-if="shown.explained.expected_start">Expected start: <starts-by :at="shown.explained.expected_start" :words="shown.explained.expected_words"></starts-by>.</template>
        <template v-if="shown.explained.victims.length">Preempts {{ shown.explained.victims.join(", ") }}.</template>
        {{ " " }}<a :href="link('queue')">See the queue</a></p>
    </section>

    <div class="cards">
      <section v-if="!shown.alone" class="card"><h2>Network</h2>
        <template v-if="run.network"><p class="value">{{ run.network.words }}</p><p class="soft">{{ run.network.network }}</p>
          <template v-if="run.network.estimate"><p><b>~{{ run.network.estimate.busbw_gbps.toFixed(0) }} GB/s</b> all-reduce on
            {{ run.network.estimate.words }}</p><p class="soft">{{ run.network.estimate.basis }}</p></template></template>
        <p v-else class="soft">Not placed.</p></section>
      <section class="card"><h2>Restart budget</h2>
        <p v-if="run.restarts.budget === null" class="value">unlimited</p>
        <template v-else><p class="value">{{ run.restarts.left }} of {{ run.restarts.budget }} left</p>
          <p v-if="shown.alone" class="soft">Each worker has its own; this is the least.</p>
          <p class="pips" aria-hidden="true"><i v-for="(left, i) in pips" :key="i" :class="{ left }"></i></p></template>
        <p v-if="run.restarts.next_earned_at" class="soft">The next is earned back <when :at="run.restarts.next_earned_at"></when>.</p>
        <p v-else class="soft">Only real failures spend it; {{ shown.earns_every / 60 }} min of running earn one back.</p></section>
      <section class="card"><h2>Run</h2>
        <dl class="facts"><dt>GPUs</dt><dd>{{ shown.gpus }}</dd><dt>Attempt</dt><dd>{{ run.attempt }}</dd>
          <dt>Priority</dt><dd>{{ shown.priority }}</dd><dt>Submitted</dt><dd><when :at="run.submitted_at"></when> by {{ shown.by }}</dd>
          <dt>UID</dt><dd><code>{{ run.metadata.uid }}</code></dd>
          <template v-if="run.finished_at"><dt>Finished</dt><dd><when :at="run.finished_at"></when></dd></template></dl>
        <p><span v-for="[key, value] in labels" :key="key" class="label">{{ key }}={{ value }}</span></p>
        <p v-if="shown.temporal"><a :href="shown.temporal" target="_blank" rel="noopener">{{ shown.alone ? "Histories" : "History" }} in Temporal ↗</a></p></section>
    </div>

    <gang :workers="run.workers" :cluster="run.cluster" :alone="shown.alone" @log="readLog"></gang>
    <logs v-if="placed" id="logs" :run="run" :attempts="shown.attempts" :worker="logOf" :alone="shown.alone"></logs>
    <attempts :attempts="shown.attempts"></attempts>
    <section class="card"><h2>Events</h2>
      <p v-if="!shown.events.length" class="soft">Nothing happened yet.</p>
      <events v-else :events="shown.events"></events></section>
    <section v-if="shown.namesakes.length" class="card"><h2>Other runs of this name</h2>
      <ul class="namesakes"><li v-for="one in shown.namesakes" :key="one.uid"><chip :state="one.state"></chip>
        <a :href="link('runs', one.cluster, name) + '?uid=' + one.uid">Submitted <when :at="one.submitted_at"></when></a>
        <span class="soft">{{ one.reason }}</span></li></ul></section>
    <section class="card"><div class="head"><h2>Specification</h2><span class="grow"></span>
      <button class="button" @click="copySpec">{{ copied ? "Copied" : "Copy" }}</button>
      <a v-if="can('editor')" class="button" :href="link('runs', 'new') + '?from=' + run.metadata.uid">Use for a new run</a></div>
      <pre class="json" tabindex="0" aria-label="Specification">{{ spec }}</pre></section>`,
};
Run.components.SpanOf = Span;
