// A new run: its specification as JSON, with faults at their place and what would happen now beside it.
import { Editor } from "./editor.js";
import { Question, StartsBy } from "./parts.js";

const PART = 125_000; // It is quoted twice on its way, which makes up to seven letters of one; a message takes a million.
const NO_JSON = /line (\d+), column/;

// A key for this press of the button: pressed again after an answer was lost, it starts no second run.
function key() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function keep(place, text) {
  try {
    sessionStorage.setItem(place, text);
  } catch {
    // What is too large to keep is kept in the page only.
  }
}

export const NewRun = {
  components: { Editor, Question, StartsBy },
  inject: ["act", "link", "can"],
  props: { shown: Object },
  data() {
    const place = `astraeus-draft:${location.pathname}${location.search}`;
    const first = sessionStorage.getItem(place) || this.shown.text;
    const sent = JSON.parse(sessionStorage.getItem(`${place}:sent`) || "{}");
    return { place, first, written: first, source: this.shown.source, key: sent.text === first ? sent.key : key(),
      faults: [], plan: null, error: "", busy: false, checking: false, template: "", saved: "", asked: 0 };
  },
  methods: {
    changed(text) {
      this.saved = "";
      // The editor says what it was given too, and that is no change.
      if (text !== this.written) {
        this.written = text;
        this.key = key();
        // Without a change there is no draft: the template may be another when one comes back.
        if (text === this.shown.text) sessionStorage.removeItem(this.place);
        else keep(this.place, text);
      }
      clearTimeout(this.timer);
      this.checking = true;
      this.timer = setTimeout(this.check, 350);
    },
    // What is sent in one message is bounded, so a long text goes in parts.
    async send(name, values) {
      const text = this.$refs.editor.text();
      const id = key();
      let from = 0;
      while (text.length - from > PART) {
        const half = /[\ud800-\udbff]/.test(text[from + PART - 1]); // Half a character cannot be sent.
        const end = from + PART - (half ? 1 : 0);
        await this.act("part", { id, text: text.slice(from, end) });
        from = end;
      }
      return this.act(name, { ...values, id, text: text.slice(from) });
    },
    async check() {
      const asked = ++this.asked;
      try {
        const plan = await this.send("plan", {});
        if (asked === this.asked) Object.assign(this, { plan, faults: [], error: "" });
      } catch (error) {
        if (asked === this.asked) this.refused(error);
      }
      this.checking = asked !== this.asked;
    },
    refused(error) {
      this.plan = null;
      const line = NO_JSON.exec(error.message);
      this.faults = error.faults || (line ? [{ pointer: "", line: Number(line[1]), message: error.message }] : []);
      this.error = this.faults.length ? "" : error.message;
    },
    async start() {
      this.busy = true;
      // The page may be loaded anew before the answer comes.
      keep(`${this.place}:sent`, JSON.stringify({ text: this.$refs.editor.text(), key: this.key }));
      try {
        const run = await this.send("start", { key: this.key });
        sessionStorage.removeItem(this.place);
        sessionStorage.removeItem(`${this.place}:sent`);
        location.assign(this.link("runs", run.cluster, run.name));
      } catch (error) {
        this.refused(error);
        this.busy = false;
      }
    },
    ask() {
      try {
        this.template = JSON.parse(this.$refs.editor.text()).metadata?.name || "";
      } catch {
        this.template = "";
      }
      this.$refs.question.ask();
    },
    async save({ done, failed }) {
      try {
        this.saved = await this.send("save", { template: this.template });
        done();
      } catch (error) {
        failed(error);
        if (error.faults) this.refused(error);
      }
    },
    begin(name) {
      if (name) location.assign(`${this.link("runs", "new")}?template=${encodeURIComponent(name)}`);
    },
    reset() {
      this.$refs.editor.replace(this.shown.text);
    },
    tidy() {
      try {
        this.$refs.editor.replace(JSON.stringify(JSON.parse(this.$refs.editor.text()), null, 2));
      } catch {
        this.check();
      }
    },
  },
  template: `
    <nav class="crumbs" aria-label="Where this is"><a :href="link('runs')">Runs</a> /</nav>
    <div class="head"><h1>New run</h1><span class="soft">from {{ source }}</span><span class="grow"></span>
      <label v-if="shown.templates.length" class="field inline">Begin with
        <select @change="begin($event.target.value)"><option value="">a template…</option>
          <option v-for="name in shown.templates" :key="name">{{ name }}</option></select></label></div>
    <div class="two">
      <section class="card edit"><div class="head"><h2>Edit as JSON</h2><span class="grow"></span>
          <button class="button quiet" @click="tidy">Tidy</button><button class="button quiet" @click="reset">Reset</button></div>
        <editor ref="editor" :start="first" :schema="shown.schema" :faults="faults" @changed="changed"></editor></section>
      <aside class="card plan" aria-label="What would happen now"><h2>Now <span v-if="checking" class="soft">checking…</span></h2>
        <div aria-live="polite">
          <template v-if="faults.length"><p class="bad"><b>{{ faults.length }} {{ faults.length === 1 ? "fault" : "faults" }}</b></p>
            <ul class="faults"><li v-for="fault in faults" :key="fault.pointer + fault.message"><button class="link" @click="$refs.editor.goTo(fault)">
              <code>{{ fault.pointer || "the text" }}</code> {{ fault.message }}</button></li></ul></template>
          <p v-else-if="error" class="bad">{{ error }}</p>
          <template v-else-if="plan"><p class="value" :class="plan.fits ? 'good' : 'warn'">{{ plan.fits ? "Starts at once" : "Would wait" }}</p>
            <p>{{ plan.reason }}</p>
            <dl class="facts"><dt>Cluster</dt><dd>{{ plan.cluster }}</dd>
              <template v-if="plan.network"><dt>Network</dt><dd>{{ plan.network.words }}<br><span class="soft">{{ plan.network.network }}</span></dd>
                <dt>Rung</dt><dd>{{ plan.rung }}</dd></template>
              <template v-if="plan.network?.estimate"><dt>All-reduce</dt><dd>~{{ plan.network.estimate.busbw_gbps.toFixed(0) }} GB/s<br>
                <span class="soft">{{ plan.network.estimate.basis }}</span></dd></template>
              <template v-if="plan.machines.length"><dt>Machines</dt><dd>{{ plan.machines.length }} × {{ plan.gpus_per_worker }} GPUs<br>
                <span class="soft">{{ plan.machines.slice(0, 16).join(", ") }}{{ plan.machines.length > 16 ? " …" : "" }}</span></dd></template>
              <template v-if="plan.position"><dt>Place</dt><dd>{{ plan.position }} in the queue</dd></template>
              <template v-if="plan.expected_start"><dt>Expected start</dt><dd><starts-by :at="plan.expected_start" :words="plan.expected_words"></starts-by></dd></template></dl>
            <template v-if="plan.blockers.length"><h3>Blockers</h3><ul><li v-for="one in plan.blockers" :key="one">{{ one }}</li></ul></template>
            <template v-if="plan.victims.length"><h3>Would preempt</h3><ul><li v-for="one in plan.victims" :key="one">{{ one }}</li></ul></template>
          </template>
          <p v-if="saved" class="good">Saved as the template {{ saved }}.</p></div>
        <div v-if="can('editor')" class="row buttons"><button class="button main" :disabled="busy || faults.length > 0" @click="start">Start run</button>
          <button class="button" :disabled="busy" @click="ask">Save as template</button></div>
        <p v-else class="soft">Starting runs needs the role editor; this is a plan only.</p>
        <p class="soft">Ctrl+Space completes; faults stand under their lines.</p></aside></div>
    <question ref="question" title="Save as template" confirm="Save" @yes="save">
      <label class="field">Name of the template<input v-model="template" required maxlength="63"></label></question>`,
};
