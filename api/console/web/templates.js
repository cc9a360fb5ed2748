// Templates: look, start under a name, edit, delete.
import { Empty, Question, When } from "./parts.js";

export const Templates = {
  components: { Empty, Question, When },
  inject: ["act", "link", "can"],
  props: { shown: Object },
  data() {
    return { chosen: "", name: "" };
  },
  methods: {
    ask(which, row) {
      this.chosen = row.name;
      this.name = row.name;
      this.$refs[which].ask();
    },
    async run({ done, failed }) {
      try {
        const run = await this.act("run", { template: this.chosen, name: this.name });
        done();
        location.assign(this.link("runs", run.cluster, run.name));
      } catch (error) {
        failed(error);
      }
    },
    async remove({ done, failed }) {
      try {
        await this.act("delete", { name: this.chosen });
        done();
      } catch (error) {
        failed(error);
      }
    },
    text(row) {
      return JSON.stringify(row.body, null, 2);
    },
    edit(row) {
      return `${this.link("runs", "new")}?template=${encodeURIComponent(row.name)}`;
    },
  },
  template: `
    <div class="head"><h1>Templates</h1><span class="grow"></span><a v-if="can('editor')" class="button main" :href="link('runs', 'new')">New specification</a></div>
    <empty v-if="!shown.rows.length"><h2>No templates yet</h2><p>Write a specification under New run and choose Save as template.</p></empty>
    <section v-for="row in shown.rows" :key="row.name" class="card"><div class="head"><h2>{{ row.name }}</h2><span class="soft">{{ row.gpus }} GPUs · saved <when :at="row.at"></when> by {{ row.by }}</span><span class="grow"></span>
        <template v-if="can('editor')"><button class="button main" :aria-label="'Start a run of ' + row.name" @click="ask('start', row)">Start run</button><a class="button" :href="edit(row)" :aria-label="'Edit ' + row.name">Edit</a>
          <button class="button danger" :aria-label="'Delete ' + row.name" @click="ask('remove', row)">Delete</button></template></div>
      <details><summary>Specification</summary><pre class="json" tabindex="0">{{ text(row) }}</pre></details></section>
    <question ref="start" :title="'Start a run of ' + chosen" confirm="Start run" @yes="run"><label class="field">Name of the run<input v-model="name" required maxlength="52"></label></question>
    <question ref="remove" title="Delete this template?" confirm="Delete template" danger @yes="remove"><p><b>{{ chosen }}</b></p><p>Runs made from it stay.</p></question>`,
};
