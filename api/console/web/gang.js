// The gang as a grid of workers, by leaf group; each tile tells its state as it changes.
export const Gang = {
  inject: ["link"],
  props: { workers: Array, cluster: String, alone: Boolean },
  emits: ["log"],
  computed: {
    groups() {
      const groups = new Map();
      for (const worker of this.workers) {
        const leaf = worker.leaf || (worker.machine ? "no leaf group" : "not placed");
        if (!groups.has(leaf)) groups.set(leaf, []);
        groups.get(leaf).push(worker);
      }
      return [...groups];
    },
    counts() {
      const counts = {};
      for (const { state } of this.workers) counts[state] = (counts[state] || 0) + 1;
      return Object.entries(counts);
    },
    dense() {
      return this.workers.length > 64;
    },
  },
  methods: {
    title(worker) {
      const parts = [worker.name, worker.state];
      if (worker.machine) parts.push(`on ${worker.machine}`, `GPUs ${worker.gpus.join(", ") || "none"}`);
      if (worker.reason) parts.push(`attempt ${worker.attempt}`, worker.reason);
      if (worker.arrived_at) parts.push(`at the barrier ${new Date(worker.arrived_at).toLocaleTimeString()}`);
      if (worker.exit_code !== null) parts.push(`exit code ${worker.exit_code}`);
      if (worker.signal !== null) parts.push(`signal ${worker.signal}`);
      if (worker.error) parts.push(worker.error);
      return parts.join(" · ");
    },
  },
  template: `
    <section class="card"><div class="head"><h2>{{ alone ? "Workers" : "Gang" }}</h2>
      <span v-for="[state, count] in counts" :key="state" class="chip" :class="'is-' + state.toLowerCase()">{{ count }} {{ state }}</span></div>
      <p v-if="!workers.length" class="soft">No workers: the gang is not placed.</p>
      <div v-for="[leaf, members] in groups" :key="leaf" class="leaf"><h3>{{ leaf }} <span class="soft">· {{ members.length }}</span></h3>
        <ul class="gang" :class="{ dense }">
          <li v-for="worker in members" :key="worker.name"><button type="button" class="worker" :class="'is-' + worker.state.toLowerCase()"
            :title="title(worker)" :aria-label="dense ? title(worker) : null" @click="$emit('log', worker.rank)">
            <b>{{ worker.rank }}</b><template v-if="!dense"><span>{{ worker.state }}</span><span class="soft">{{ worker.machine || "–" }}</span>
            <span v-if="worker.exit_code" class="bad">exit {{ worker.exit_code }}</span></template></button></li>
        </ul></div></section>`,
};
