// The list of runs: the server cuts, counts and searches; the page shows one cut of it, live.
import { Batch } from "./batch.js";
import { Chip, Empty, Span, When } from "./parts.js";

export const Runs = {
  components: { Batch, Chip, Empty, Span, When },
  inject: ["look", "link", "can"],
  props: { shown: Object },
  data() {
    const query = new URLSearchParams(location.search);
    const states = (query.get("states") || "").split(",").filter(Boolean);
    return { search: query.get("search") || "", states, cluster: query.get("only") || "", mine: query.get("mine") || "",
      timer: null, chosen: new Map() };
  },
  computed: {
    all() {
      return Object.values(this.shown.counts).reduce((sum, count) => sum + count, 0);
    },
    page() {
      return Math.round(this.shown.from / this.shown.size);
    },
    pages() {
      return Math.max(1, Math.ceil(this.shown.total / this.shown.size));
    },
    allChosen() {
      return this.shown.rows.every((row) => this.chosen.has(row.uid));
    },
    filtered() {
      return this.search || this.states.length || this.cluster || this.mine;
    },
  },
  methods: {
    typed() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.show(0), 200);
    },
    toggle(state) {
      this.states = this.states.includes(state) ? this.states.filter((s) => s !== state) : [...this.states, state];
      this.show(0);
    },
    clear() {
      Object.assign(this, { search: "", states: [], cluster: "", mine: "" });
      this.show(0);
    },
    show(page) {
      const asked = { search: this.search, states: this.states.join(","), only: this.cluster, mine: this.mine, page };
      const query = new URLSearchParams(Object.entries(asked).filter(([, value]) => value));
      history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : ""));
      this.look(asked);
    },
    open(row, event) {
      if (event.target.closest("a, button, input, label") || getSelection().toString()) return;
      location.assign(this.href(row));
    },
    href(row) {
      return `${this.link("runs", row.cluster, row.name)}?uid=${row.uid}`;
    },
    choose(rows, chosen) {
      for (const { uid, name } of rows) chosen ? this.chosen.set(uid, { uid, name }) : this.chosen.delete(uid);
    },
    label(key, value) {
      const word = `${key}=${value}`.replaceAll('"', "");
      this.search = /\s/.test(word) ? `"${word}"` : word;
      this.show(0);
    },
    restarts(row) {
      return row.budget === null ? "unlimited" : `${row.left} of ${row.budget}`;
    },
    // The row keys of the table: up and down move through the links of the names.
    move(event, step) {
      const links = [...this.$refs.table.querySelectorAll("a.name")];
      const next = links[links.indexOf(document.activeElement) + step];
      if (next) next.focus();
      event.preventDefault();
    },
  },
  template: `
    <div class="head">
      <h1>Runs</h1>
      <span class="grow"></span>
      <a v-if="can('editor')" class="button main" :href="link('runs', 'new')">New run</a>
    </div>
    <div class="filters" role="search">
      <input data-search type="search" v-model="search" @input="typed" placeholder="Search names, labels, reasons ( / )"
        aria-label="Search names, labels and reasons">
      <div class="row" role="group" aria-label="Filters">
        <button type="button" class="filter" :aria-pressed="!!mine" title="Submitted with this token" @click="mine = mine ? '' : '1'; show(0)">Mine</button>
        <button v-for="state in shown.states" :key="state" type="button" class="filter" @click="toggle(state)"
          :aria-pressed="states.includes(state)" :class="'is-' + state.toLowerCase()">{{ state }}
          <b>{{ shown.counts[state] || 0 }}</b></button>
      </div>
      <label v-if="shown.clusters.length > 1" class="field inline">Cluster
        <select v-model="cluster" @change="show(0)"><option value="">all</option>
          <option v-for="one in shown.clusters" :key="one">{{ one }}</option></select></label>
    </div>
    <empty v-if="!shown.rows.length && !filtered && !all">
      <h2>No runs yet</h2>
      <p v-if="can('editor')">Start one from a specification: <a :href="link('runs', 'new')">New run</a>.</p>
      <p v-else>Runs that editors submit appear here.</p>
    </empty>
    <empty v-else-if="!shown.rows.length">
      <h2>No run is like that</h2>
      <p><button class="button" @click="clear">Show all {{ all }} runs</button></p>
    </empty>
    <div v-else class="table-wrap" tabindex="0">
      <table ref="table" class="table runs" @keydown.down="move($event, 1)" @keydown.up="move($event, -1)">
        <caption class="hidden">Runs, newest first</caption>
        <thead><tr><th v-if="can('editor')" scope="col" class="pick"><input type="checkbox" aria-label="Choose every run of this page" :checked="allChosen" @change="choose(shown.rows, $event.target.checked)"></th>
          <th scope="col">Name</th><th scope="col">Cluster</th><th scope="col">State</th>
          <th scope="col">Reason</th><th scope="col" class="num">GPUs</th><th scope="col">Network</th>
          <th scope="col">Age</th><th scope="col">Restarts left</th></tr></thead>
        <tbody>
          <tr v-for="row in shown.rows" :key="row.uid" @click="open(row, $event)">
            <td v-if="can('editor')" class="pick"><input type="checkbox" :aria-label="'Choose ' + row.name" :checked="chosen.has(row.uid)" @change="choose([row], $event.target.checked)"></td>
            <th scope="row"><a class="name" :href="href(row)">{{ row.name }}</a>
              <button v-for="(value, key) in row.labels" :key="key" type="button" class="label" :title="'Runs with ' + key + '=' + value" @click="label(key, value)">{{ key }}={{ value }}</button></th>
            <td data-head="Cluster">{{ row.cluster }}</td>
            <td data-head="State"><chip :state="row.state"></chip> <span v-if="row.held" class="label">held</span></td>
            <td data-head="Reason" class="reason"><div class="clamp" :title="row.reason">{{ row.reason }}</div></td>
            <td data-head="GPUs" class="num">{{ row.gpus }}</td>
            <td data-head="Network">{{ row.network || "–" }}</td>
            <td data-head="Age" :title="'Submitted by ' + row.by"><when :at="row.submitted" short></when></td>
            <td data-head="Restarts left">{{ restarts(row) }}</td>
          </tr>
        </tbody>
      </table>
    </div>
    <batch v-if="can('editor')" :runs="[...chosen.values()]" @done="chosen.delete($event)" @clear="chosen.clear()"></batch>
    <nav v-if="shown.total > shown.size || page" class="pager" aria-label="Pages of runs">
      <button class="button" :disabled="page === 0" @click="show(page - 1)">Newer</button>
      <span role="status">{{ shown.from + 1 }}–{{ shown.from + shown.rows.length }} of {{ shown.total }}</span>
      <button class="button" :disabled="page + 1 >= pages" @click="show(page + 1)">Older</button>
    </nav>`,
};
