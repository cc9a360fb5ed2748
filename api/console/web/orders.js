// The orders a run takes, each with a question before it.
import { FINAL, Question } from "./parts.js";

export const KINDS = {
  cancel: ["Cancel", "Stop this run for good?", "Its workers get SIGTERM and their grace; it does not start again."],
  preempt: ["Preempt", "Preempt this run?", "It stops, saves, and waits to run again. This is not charged."],
  restart: ["Restart", "Restart the gang?", "All workers stop and the gang is placed again. This is not charged."],
  hold: ["Hold", "Hold this run?", "It is not placed until it is released. A running gang goes on."],
  release: ["Release", "Release this run?", "It may be placed again."],
  delete: ["Delete", "Delete this run?", "It is stopped if it runs, then hidden. Its name is free at once."],
};

export const Orders = {
  components: { Question },
  inject: ["act", "can"],
  props: { run: Object },
  emits: ["deleted"],
  data() {
    return { kind: "cancel", why: "", kinds: KINDS };
  },
  computed: {
    offered() {
      if (FINAL.includes(this.run.state)) return ["delete"];
      const placed = ["Starting", "Running"].includes(this.run.state);
      // Between two attempts it ends the pause.
      const again = placed || this.run.workers.length > 0;
      return [placed && "preempt", again && "restart", this.run.held ? "release" : "hold", "cancel", "delete"].filter(Boolean);
    },
    words() {
      return KINDS[this.kind];
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
        await this.act(this.kind, { run: this.run.metadata.uid, why: this.why });
        done();
        if (this.kind === "delete") this.$emit("deleted");
      } catch (error) {
        failed(error);
      }
    },
  },
  template: `
    <div v-if="can('editor')" class="row orders" role="group" aria-label="Orders to this run">
      <button v-for="kind in offered" :key="kind" type="button" class="button"
        :class="{ danger: kind === 'cancel' || kind === 'delete' }" @click="ask(kind)">{{ kinds[kind][0] }}</button>
      <question ref="question" :title="words[1]" :confirm="words[0] + ' run'" @yes="give"
        :danger="kind === 'cancel' || kind === 'delete'">
        <p><b>{{ run.metadata.name }}</b> on {{ run.cluster }}</p>
        <p>{{ words[2] }}</p>
        <label v-if="kind !== 'delete'" class="field">Why (shown in its reason and events)
          <input v-model="why" maxlength="1000"></label>
      </question>
    </div>`,
};
