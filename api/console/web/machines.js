// Machines: the list, and one machine with its orders.
import { Chip, ClusterPick, Empty, Question, Span, When, byName } from "./parts.js";

const WORDS = {
  drain: ["Drain", "Drain this machine?", "It takes no new work, and what runs there moves, not charged."],
  cordon: ["Cordon", "Cordon this machine?", "It takes no new work; what runs there stays."],
  return: ["Return", "Return this machine to work?", "It takes new work again."],
};

export const MachineOrders = {
  components: { Question },
  inject: ["act", "can"],
  props: { machine: Object },
  data() {
    return { kind: "drain", why: "", words: WORDS };
  },
  computed: {
    offered() {
      if (!this.machine.cordoned) return ["drain", "cordon"];
      return this.machine.by ? ["return"] : ["drain", "return"];
    },
  },
  methods: {
    ask(kind) {
      this.kind = kind;
      this.why = "";
      this.$refs.question.ask();
    },
    async give({ done, failed }) {
      try {
        await this.act(this.kind, { name: this.machine.name, cluster: this.machine.cluster, why: this.why });
        done();
      } catch (error) {
        failed(error);
      }
    },
  },
  template: `
    <span v-if="can('admin')" class="row" role="group" :aria-label="'Orders to ' + machine.name">
      <button v-for="kind in offered" :key="kind" class="button" :aria-label="words[kind][0] + ' ' + machine.name" @click="ask(kind)">{{ words[kind][0] }}</button>
      <question ref="question" :title="words[kind][1]" :confirm="words[kind][0] + ' machine'" :danger="kind === 'drain'" @yes="give">
        <p><b>{{ machine.name }}</b> in {{ machine.cluster }}</p><p>{{ words[kind][2] }}</p>
        <label v-if="kind !== 'return'" class="field">Why (shown to whoever waits)<input v-model="why" maxlength="1000"></label></question></span>`,
};

const STEP = 200;

export const Machines = {
  components: { Chip, ClusterPick, Empty, MachineOrders },
  inject: ["link", "can"],
  props: { shown: Object },
  data() {
    return { search: "", health: "", most: STEP, step: STEP };
  },
  computed: {
    healths() {
      const counts = {};
      for (const row of this.shown.rows) counts[row.health] = (counts[row.health] || 0) + 1;
      return Object.entries(counts);
    },
    rows() {
      const wanted = this.search.toLowerCase();
      const holds = (row) => [row.name, row.leaf, row.rack, row.model, row.why, ...row.runs].some((t) => t?.toLowerCase().includes(wanted));
      const rows = this.shown.rows.filter((row) => (!this.health || row.health === this.health) && (!wanted || holds(row)));
      return rows.sort((a, b) => byName(a.name, b.name));
    },
  },
  template: `
    <div class="head"><h1>Machines</h1><span class="grow"></span><cluster-pick :clusters="shown.clusters" :cluster="shown.cluster"></cluster-pick></div>
    <empty v-if="!shown.rows.length"><h2>No machines yet</h2><p>Machines appear here once their agents report.</p></empty>
    <template v-else>
      <div class="filters" role="search"><input data-search type="search" v-model="search" placeholder="Search names, leaf groups, runs ( / )" aria-label="Search machines">
        <div class="row" role="group" aria-label="Health"><button v-for="[name, count] in healths" :key="name" class="filter" :aria-pressed="health === name"
          @click="health = health === name ? '' : name"><i class="tile" :class="'m-' + name"></i>{{ name }} <b>{{ count }}</b></button></div></div>
      <empty v-if="!rows.length"><h2>No machine is like that</h2></empty>
      <div v-else class="table-wrap" tabindex="0"><table class="table"><thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col" class="num">GPUs free</th>
          <th scope="col">Model</th><th scope="col">Leaf group</th><th scope="col">Runs</th><th scope="col">Out of work because</th><th v-if="can('admin')" scope="col">Orders</th></tr></thead>
        <tbody><tr v-for="row in rows.slice(0, most)" :key="row.name"><th scope="row"><a class="name" :href="link('machines', row.cluster, row.name)">{{ row.name }}</a>
            <span v-if="row.faults" class="label warn">{{ row.faults }} {{ row.faults === 1 ? "fault" : "faults" }}</span></th>
          <td data-head="State"><span class="chip" :class="'m-' + row.health">{{ row.health }}</span></td><td data-head="GPUs free" class="num">{{ row.free }} / {{ row.gpus }}</td>
          <td data-head="Model" class="model">{{ row.model }}</td><td data-head="Leaf group">{{ row.leaf || "–" }}</td>
          <td data-head="Runs" class="long">{{ row.runs.join(", ") || "–" }}</td><td data-head="Because" class="long">{{ row.by ? (row.why || "no reason given") + " (" + row.by + ")" : "–" }}</td>
          <td v-if="can('admin')"><machine-orders :machine="row"></machine-orders></td></tr></tbody></table></div>
      <p v-if="rows.length > most"><button class="button" @click="most += 5 * step">Show more of {{ rows.length }}</button></p>
    </template>`,
};

export const Machine = {
  components: { MachineOrders, SpanOf: Span, When },
  inject: ["link"],
  props: { shown: Object },
  computed: {
    one() {
      return this.shown.machine;
    },
  },
  template: `
    <nav class="crumbs" aria-label="Where this is"><a :href="link('machines')">Machines</a> / {{ one.cluster }} /</nav>
    <div class="head"><h1>{{ one.name }}</h1><span class="chip" :class="'m-' + one.health">{{ one.health }}</span><span class="grow"></span>
      <machine-orders :machine="one"></machine-orders></div>
    <p v-if="one.by" class="note">Drained by <b>{{ one.by }}</b>: {{ one.why || "no reason given" }}</p>
    <div class="cards">
      <section class="card"><h2>GPUs</h2><p class="value">{{ one.free }} of {{ one.gpus }} free</p><p class="soft">{{ one.gpu_model }}</p>
        <p v-if="one.broken_gpus.length" class="bad">Broken: {{ one.broken_gpus.join(", ") }}</p><p v-if="one.doubtful_gpus.length" class="warn">Doubtful: {{ one.doubtful_gpus.join(", ") }}</p></section>
      <section class="card"><h2>State</h2><p class="value">{{ one.state }}</p><p class="soft">for <span-of :from="shown.since"></span-of></p>
        <p>{{ one.cpu_cores }} cores, {{ (one.memory_bytes / 2 ** 30).toFixed(0) }} GiB</p></section>
      <section class="card"><h2>Runs now</h2><p v-if="!shown.now.length" class="soft">None.</p><p v-for="run in shown.now" :key="run.uid"><a v-if="run.ours" :href="link('runs', one.cluster, run.name) + '?uid=' + run.uid">{{ run.name }}</a><span v-else>{{ run.name }}</span></p></section>
    </div>
    <section class="card"><h2>Ports</h2><p v-if="!one.nics.length" class="soft">None reported.</p>
      <div class="row wrap"><span v-for="nic in one.nics" :key="nic.device + nic.port" class="label" :class="{ 'bad-note': !nic.up }">{{ nic.device }}:{{ nic.port }} · {{ nic.link }} {{ nic.gbps }} Gb/s · rail {{ nic.rail }} · {{ nic.up ? "up" : "down" }}</span></div></section>
    <section class="card"><h2>Labels</h2><dl class="facts"><template v-for="(value, key) in one.labels" :key="key"><dt>{{ key }}</dt><dd>{{ value }}</dd></template></dl></section>
    <section class="card"><h2>What ran here</h2><p v-if="!shown.history.length" class="soft">Nothing yet.</p>
      <div v-else class="table-wrap" tabindex="0"><table class="table"><thead><tr><th scope="col">Run</th><th scope="col">Attempt</th><th scope="col">Began</th><th scope="col">Took</th><th scope="col">How it ended</th></tr></thead>
        <tbody><tr v-for="row in shown.history" :key="row.name + row.attempt + row.granted_at"><td><a v-if="row.ours" :href="link('runs', one.cluster, row.name) + '?uid=' + row.uid">{{ row.name }}</a><span v-else>{{ row.name }}</span></td>
          <td data-head="Attempt">{{ row.attempt }}</td><td data-head="Began"><when :at="row.granted_at"></when></td><td data-head="Took"><span-of :from="row.granted_at" :to="row.released_at"></span-of></td>
          <td data-head="Ended"><b>{{ row.cause ? row.cause.replaceAll("_", " ") : "goes on" }}</b> {{ row.detail }}</td></tr></tbody></table></div></section>`,
};
