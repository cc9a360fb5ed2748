// The network as a map: fabrics, spine groups, leaf groups, machines, coloured by what they do.
import { ClusterPick, Empty, byName, hues } from "./parts.js";

const LISTED = 20;
const LEGEND = ["free", "busy", "draining", "drained", "returning", "down"];

export const Topology = {
  components: { ClusterPick, Empty },
  inject: ["look", "link"],
  props: { shown: Object },
  data() {
    return { legend: LEGEND, marked: "", all: false };
  },
  computed: {
    dense() {
      return this.shown.totals.machines > 128;
    },
    machines() {
      return this.shown.tree.flatMap((f) => f.spines.flatMap((s) => s.leaves.flatMap((l) => l.machines)));
    },
    counts() {
      const counts = {};
      for (const [, state] of this.machines) counts[state] = (counts[state] || 0) + 1;
      return counts;
    },
    runs() {
      const gpus = new Map();
      for (const machine of this.machines) {
        for (const run of machine[4]) gpus.set(run, (gpus.get(run) || 0) + 1);
      }
      return [...gpus].sort((a, b) => b[1] - a[1]);
    },
    known() {
      const counts = {};
      for (const { severity } of this.shown.findings) counts[severity] = (counts[severity] || 0) + 1;
      return Object.entries(counts).map(([severity, count]) => `${count} ${severity}${count > 1 && severity !== "info" ? "s" : ""}`);
    },
    listed() {
      return this.all ? this.shown.findings : this.shown.findings.slice(0, LISTED);
    },
    hues() {
      return hues(this.runs.map(([run]) => run));
    },
    domains() {
      const found = new Map();
      for (const machine of this.machines) {
        if (!machine[5]) continue;
        const [all, ready] = found.get(machine[5]) || [0, 0];
        found.set(machine[5], [all + 1, ready + (["free", "busy"].includes(machine[1]) ? 1 : 0)]);
      }
      return [...found];
    },
  },
  methods: {
    style([, state, gpus, free, runs]) {
      if (state !== "busy" && state !== "draining") return null;
      const used = gpus ? Math.round((100 * (gpus - free)) / gpus) : 100;
      return { "--hue": this.hues.get(runs[0]) ?? 210, "--used": state === "busy" ? `${used}%` : "100%" };
    },
    title([name, state, gpus, free, runs, domain, rack, model]) {
      const parts = [name, state, `${free} of ${gpus} GPUs free`, model];
      if (rack) parts.push(`rack ${rack}`);
      if (domain) parts.push(`NVLink domain ${domain}`);
      if (runs.length) parts.push(`runs ${runs.join(", ")}`);
      if (this.shown.faults[name]) parts.push(`fault: ${this.shown.faults[name]}`);
      return parts.filter(Boolean).join(" · ");
    },
    tone(found) {
      return { error: "bad", warning: "warn" }[found.severity];
    },
    toFindings() {
      document.getElementById("findings").scrollIntoView();
    },
    faint(machine) {
      return this.marked && !machine[4].includes(this.marked);
    },
    sorted(machines) {
      return [...machines].sort((a, b) => byName(a[0], b[0]));
    },
    // One stop for Tab per leaf group; arrows move within it.
    move(event) {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      const tiles = [...event.currentTarget.querySelectorAll("a")];
      tiles[tiles.indexOf(document.activeElement) + step]?.focus();
      event.preventDefault();
    },
    mark(run) {
      this.marked = this.marked === run ? "" : run;
    },
    hueOf(run) {
      return { "--hue": this.hues.get(run) };
    },
  },
  template: `
    <div class="head"><h1>Topology</h1><span class="grow"></span><cluster-pick :clusters="shown.clusters" :cluster="shown.cluster"></cluster-pick></div>
    <empty v-if="!shown.totals.machines"><h2>No machines yet</h2><p>Machines appear here once their agents report.</p></empty>
    <template v-else>
      <div class="cards">
        <section class="card"><h2>Free now</h2><p class="value">{{ shown.totals.free }} of {{ shown.totals.gpus }} GPUs</p>
          <ul class="legend"><li v-for="state in legend" :key="state"><i class="tile" :class="'m-' + state"></i>{{ counts[state] || 0 }} {{ state }}</li></ul>
          <p v-if="known.length"><button class="filter" @click="toFindings">Faults of the network: {{ known.join(", ") }}</button></p></section>
        <section class="card wide"><h2>Largest gang that fits now</h2>
          <div class="table-wrap" tabindex="0"><table class="table small"><thead><tr><th scope="col">Rung</th><th scope="col">On</th><th scope="col" class="num">GPUs</th><th scope="col">Shape</th><th scope="col">Where</th></tr></thead>
            <tbody><tr v-for="room in shown.rooms" :key="room.rung"><td>{{ room.rung }}</td><td>{{ room.words }}</td><td class="num"><b>{{ room.total }}</b></td>
              <td>{{ room.total ? room.machines + " × " + room.gpus : "none fits" }}</td><td class="soft">{{ room.place }}</td></tr></tbody></table></div>
          <p v-for="(count, run) in shown.kept" :key="run" class="soft">{{ count }} of the free GPUs are kept for {{ run }}, which waits.</p></section>
      </div>
      <section v-if="runs.length" class="card"><h2>Runs here</h2><div class="row wrap">
        <button v-for="[run, count] in runs.slice(0, 40)" :key="run" class="filter" :aria-pressed="marked === run" @click="mark(run)">
          <i class="tile m-busy" :style="hueOf(run)"></i>{{ run }} <b>{{ count }}</b> <span class="soft">{{ count === 1 ? "machine" : "machines" }}</span></button></div></section>
      <section v-for="fabric in shown.tree" :key="fabric.name" class="card fabric">
        <h2>{{ fabric.name ? "Fabric " + fabric.name : "On no InfiniBand fabric" }} <span class="soft">{{ fabric.free }} of {{ fabric.gpus }} GPUs free</span></h2>
        <div v-for="spine in fabric.spines" :key="spine.name" class="spine"><h3 v-if="spine.name">Spine group {{ spine.name }}</h3>
          <div class="leaves"><div v-for="leaf in spine.leaves" :key="leaf.name" class="leafbox" :class="{ dense }">
            <h4>{{ leaf.name || "no leaf group" }} <span class="soft">{{ leaf.free }}/{{ leaf.gpus }} free</span></h4>
            <div class="tiles" :class="{ dense }" role="group" :aria-label="'Machines of ' + (leaf.name || 'no leaf group')" @keydown="move">
              <a v-for="(machine, i) in sorted(leaf.machines)" :key="machine[0]" class="tile" :class="['m-' + machine[1], { faint: faint(machine), fault: shown.faults[machine[0]] }]"
                :style="style(machine)" :tabindex="i ? -1 : 0" :href="link('machines', shown.cluster, machine[0])" :title="title(machine)" :aria-label="dense ? title(machine) : null">
                <template v-if="!dense"><b>{{ machine[0] }}<i v-if="shown.faults[machine[0]]" role="img" aria-label="has a fault"> ⚠</i></b><span>{{ machine[4].join(", ") || machine[1] }}</span>
                  <span>{{ machine[3] }}/{{ machine[2] }} free</span></template></a></div></div></div></div></section>
      <section v-if="domains.length" class="card"><h2>NVLink domains</h2><div class="row wrap">
        <span v-for="[name, [all, ready]] in domains" :key="name" class="label">{{ name }}: {{ ready }} of {{ all }} machines healthy</span></div></section>
      <section class="card" aria-labelledby="findings"><h2 id="findings">Findings <span v-if="shown.findings.length" class="soft">{{ shown.findings.length }}</span></h2>
        <p v-if="!shown.findings.length" class="soft">No fault of the network is known.</p>
        <ul class="findings"><li v-for="found in listed" :key="found.id">
          <p><span class="label" :class="tone(found)">{{ found.severity }}</span> <b>{{ found.place }}</b> {{ found.message }}</p>
          <p class="soft">Costs: {{ found.cost }}<template v-if="found.costs.length">:</template></p>
          <ul v-if="found.costs.length"><li v-for="cost in found.costs" :key="cost.run"><b>{{ cost.run }}</b>
            {{ cost.without.busbw_gbps.toFixed(1) }} → <b>{{ cost.now.busbw_gbps.toFixed(1) }} GB/s</b> <span class="soft">{{ cost.now.basis }}</span></li></ul>
          <p v-else-if="found.runs.length" class="soft">Runs there: {{ found.runs.join(", ") }}</p>
          <p class="soft">To do: {{ found.advice }}</p></li></ul>
        <button v-if="shown.findings.length > listed.length" class="filter" @click="all = true">Show all {{ shown.findings.length }}</button></section>
    </template>`,
};
