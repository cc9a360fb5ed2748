// One order to several runs: what was refused is told run by run, and stays chosen.
import { KINDS } from "./orders.js";
import { Question } from "./parts.js";

export const Batch = {
  components: { Question },
  inject: ["act"],
  props: { runs: Array },
  emits: ["done", "clear"],
  data() {
    return { kind: "cancel", why: "", kinds: KINDS };
  },
  methods: {
    ask(kind) {
      this.kind = kind;
      this.why = "";
      this.$refs.question.ask();
    },
    async give({ done, failed }) {
      const refused = [];
      for (const run of [...this.runs]) {
        try {
          await this.act(this.kind, { run: run.uid, why: this.why });
          this.$emit("done", run.uid);
        } catch (error) {
          refused.push(`${run.name}: ${error.message}`);
        }
      }
      if (refused.length) failed(new Error(refused.join(" ")));
      else done();
    },
  },
  template: `
    <div v-show="runs.length" class="batch" role="group" aria-label="Orders to the chosen runs"><b role="status">{{ runs.length }} chosen</b>
      <button v-for="([title], kind) in kinds" :key="kind" type="button" class="button" :class="{ danger: kind === 'cancel' || kind === 'delete' }" @click="ask(kind)">{{ title }}</button>
      <span class="grow"></span><button type="button" class="button quiet" @click="$emit('clear')">Choose none</button>
      <question ref="question" :title="kinds[kind][0] + ' ' + runs.length + (runs.length === 1 ? ' run?' : ' runs?')" :confirm="kinds[kind][0] + ' all'" :danger="kind === 'cancel' || kind === 'delete'" @yes="give">
        <p>{{ runs.slice(0, 8).map((run) => run.name).join(", ") }}{{ runs.length > 8 ? " …" : "" }}</p><p>{{ kinds[kind][2] }}</p>
        <label v-if="kind !== 'delete'" class="field">Why (shown in their reasons and events)<input v-model="why" maxlength="1000"></label></question></div>`,
};
