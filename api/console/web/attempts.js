// Attempts, newest first: runs of preemptions are one line, and the last genuine failure stands on top.
import { Span, When } from "./parts.js";

const GENUINE = ["exited", "oom", "start_failed", "machine_lost", "barrier_timeout"];

export const Attempts = {
  components: { SpanOf: Span, When },
  props: { attempts: Array },
  data() {
    return { open: new Set() };
  },
  computed: {
    failure() {
      return this.attempts.findLast((attempt) => GENUINE.includes(attempt.cause));
    },
    rows() {
      const rows = [];
      for (const attempt of [...this.attempts].reverse()) {
        const last = rows.at(-1);
        if (attempt.cause === "preempted" && last?.fold) last.fold.push(attempt);
        else if (attempt.cause === "preempted") rows.push({ key: this.key(attempt), fold: [attempt] });
        else rows.push({ key: this.key(attempt), attempt });
      }
      return rows.flatMap((row) => {
        if (!row.fold || row.fold.length === 1) return [{ ...row, attempt: row.attempt || row.fold[0], fold: null }];
        const inside = this.open.has(row.key) ? row.fold.map((a) => ({ key: "in" + this.key(a), attempt: a, fold: null })) : [];
        return [row, ...inside];
      });
    },
  },
  methods: {
    key(attempt) {
      return `${attempt.worker || ""}/${attempt.attempt}`;
    },
    number(attempt) {
      return attempt.worker ? `${attempt.worker}, ${attempt.attempt}` : attempt.attempt;
    },
    toggle(key) {
      if (!this.open.delete(key)) this.open.add(key);
    },
    cause(attempt) {
      return attempt.cause ? attempt.cause.replaceAll("_", " ") : "goes on";
    },
  },
  template: `
    <section class="card"><h2>Attempts</h2>
      <p v-if="failure" class="note bad-note"><b>Last failure, attempt {{ number(failure) }}:</b> {{ failure.detail || cause(failure) }}<template v-if="failure.ended_at">, </template>
        <when :at="failure.ended_at"></when></p>
      <p v-if="!attempts.length" class="soft">Not placed yet.</p>
      <div v-else class="table-wrap" tabindex="0"><table class="table">
        <thead><tr><th scope="col">#</th><th scope="col">How it ended</th><th scope="col">Charged</th><th scope="col">Network</th>
          <th scope="col">Waited</th><th scope="col">Ran</th><th scope="col">Machines</th></tr></thead>
        <tbody><template v-for="row in rows" :key="row.key">
          <tr v-if="row.fold" class="fold"><td>{{ number(row.fold.at(-1)) }}–{{ number(row.fold[0]) }}</td>
            <td colspan="6"><button class="button quiet" :aria-expanded="open.has(row.key)" @click="toggle(row.key)">
              {{ row.fold.length }} preemptions, none charged</button></td></tr>
          <tr v-else><td>{{ number(row.attempt) }}</td>
            <td data-head="Ended"><b>{{ cause(row.attempt) }}</b> {{ row.attempt.detail }}</td>
            <td data-head="Charged">{{ row.attempt.cause ? (row.attempt.charged ? "yes" : "no") : "–" }}</td>
            <td data-head="Network">{{ row.attempt.network?.words || "–" }}</td>
            <td data-head="Waited"><span-of :from="row.attempt.entered_at" :to="row.attempt.placed_at || row.attempt.ended_at"></span-of></td>
            <td data-head="Ran"><span-of v-if="row.attempt.running_at" :from="row.attempt.running_at" :to="row.attempt.ended_at"></span-of><span v-else>–</span></td>
            <td data-head="Machines" class="reason"><div class="clamp" :title="row.attempt.machines.join(', ')">{{ row.attempt.machines.join(", ") || "–" }}</div></td></tr>
        </template></tbody></table></div></section>`,
};
