// The one component that NiceGUI draws: the frame, and in it the page that `shown` is for.
import { Frame, Problem, pages } from "astraeus-console";

export default {
  components: { PageFrame: Frame, Problem, ...pages },
  props: { page: String, frame: Object, shown: Object },
  emits: ["act"],
  provide() {
    return { act: this.act, look: this.look, can: this.can, link: this.link };
  },
  data() {
    return { waiting: new Map(), next: 1, toasts: [] };
  },
  methods: {
    // Asks the server for an action; resolves with its value, rejects with its error.
    act(name, values = {}) {
      const id = this.next++;
      return new Promise((resolve, reject) => {
        this.waiting.set(id, { resolve, reject });
        this.$emit("act", { id, name, values });
      });
    },
    look(values) {
      return this.act("look", values);
    },
    answered(id, answer) {
      const asked = this.waiting.get(id);
      this.waiting.delete(id);
      if (!asked) return;
      if (answer.error) asked.reject(Object.assign(new Error(answer.error), answer));
      else asked.resolve(answer.value);
    },
    can(role) {
      const ranks = { viewer: 1, editor: 2, admin: 3 };
      return (ranks[this.frame.role] || 0) >= ranks[role];
    },
    link(...steps) {
      const names = [this.frame.org, this.frame.workspace].map(encodeURIComponent);
      return [`/o/${names[0]}/w/${names[1]}`, ...steps.map(encodeURIComponent)].join("/");
    },
  },
  template: `
    <page-frame :frame="frame" :page="page">
      <div v-if="shown.status === 'loading'" class="state" role="status"><span class="spinner"></span> Loading…</div>
      <problem v-else-if="shown.status !== 'ready'" :shown="shown"></problem>
      <component v-else :is="'page-' + page" :shown="shown"></component>
    </page-frame>`,
};
