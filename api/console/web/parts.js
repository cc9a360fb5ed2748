// Small parts that all pages use. User's words only ever reach the page as text.
import { reactive } from "vue";

const clock = reactive({ now: Date.now() / 1000 });
setInterval(() => (clock.now = Date.now() / 1000), 1000);

export const FINAL = ["Succeeded", "Failed", "Cancelled"];

// Seconds since the epoch of a time as the server writes it: a number, or ISO 8601.
export function epoch(at) {
  return typeof at === "string" ? Date.parse(at) / 1000 : at;
}

export function lasting(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s < 600 && s % 60 ? ` ${s % 60} s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${s % 3600 >= 60 ? ` ${Math.floor((s % 3600) / 60)} min` : ""}`;
  return `${Math.floor(s / 86400)} d${s % 86400 >= 3600 ? ` ${Math.floor((s % 86400) / 3600)} h` : ""}`;
}

// A time in the reader's zone: how long ago or until then; the exact one is in the tooltip.
export const When = {
  props: { at: [Number, String], plain: Boolean, short: Boolean },
  computed: {
    date() {
      return new Date(epoch(this.at) * 1000);
    },
    words() {
      const ago = clock.now - epoch(this.at);
      if (this.plain) return this.date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
      if (this.short) return lasting(ago).split(" ").slice(0, 2).join(" ");
      if (Math.abs(ago) < 3) return "just now";
      return ago >= 0 ? `${lasting(ago)} ago` : `in ${lasting(-ago)}`;
    },
    exact() {
      return this.date.toLocaleString([], { dateStyle: "full", timeStyle: "long" });
    },
  },
  template: `<time v-if="at !== null && at !== undefined" :datetime="date.toISOString()" :title="exact">{{ words }}</time>
    <span v-else class="soft">–</span>`,
};

// When a run that waits starts at the latest; where no time is known, or what leaves is already leaving, in words.
export const StartsBy = {
  components: { When },
  props: { at: [Number, String], words: String },
  computed: {
    ahead() {
      return epoch(this.at) > clock.now;
    },
  },
  template: `<span v-if="ahead"><when :at="at"></when> at the latest</span><span v-else>{{ words }}</span>`,
};

// How long something took, or takes so far.
export const Span = {
  props: { from: [Number, String], to: [Number, String] },
  computed: {
    words() {
      const end = this.to === null || this.to === undefined ? clock.now : epoch(this.to);
      return lasting(end - epoch(this.from));
    },
  },
  template: `<span>{{ words }}</span>`,
};

export const Chip = {
  props: { state: String },
  template: `<span class="chip" :class="'is-' + state.toLowerCase()">{{ state }}</span>`,
};

// A question before something is done, in the browser's own modal dialog: it traps the focus and closes on Escape.
export const Question = {
  props: { title: String, confirm: { type: String, default: "Yes" }, danger: Boolean },
  emits: ["yes"],
  expose: ["ask", "fail"],
  data() {
    return { error: "", busy: false };
  },
  methods: {
    ask() {
      this.error = "";
      this.busy = false;
      this.$refs.dialog.showModal();
    },
    async yes() {
      this.busy = true;
      this.error = "";
      this.$emit("yes", {
        done: () => this.$refs.dialog?.close(),
        failed: (error) => {
          this.error = error.message;
          this.busy = false;
        },
      });
    },
  },
  template: `
    <dialog ref="dialog" class="question" :aria-label="title">
      <form @submit.prevent="yes">
        <h2>{{ title }}</h2>
        <slot></slot>
        <p v-if="error" class="bad" role="alert">{{ error }}</p>
        <div class="row end">
          <button type="button" class="button" @click="$refs.dialog.close()">Close</button>
          <button class="button" :class="danger ? 'danger' : 'main'" :disabled="busy">{{ confirm }}</button>
        </div>
      </form>
    </dialog>`,
};

// Which cluster to look at, where there are several.
export const ClusterPick = {
  inject: ["look"],
  props: { clusters: Array, cluster: String },
  template: `
    <label v-if="clusters.length > 1" class="field inline">Cluster
      <select :value="cluster" @change="look({ only: $event.target.value })">
        <option v-for="one in clusters" :key="one">{{ one }}</option>
      </select>
    </label>
    <span v-else class="soft">{{ cluster }}</span>`,
};

export const Empty = {
  template: `<div class="state empty"><slot></slot></div>`,
};

const PLACES = 24;

// A colour for each name: the name's own where that is free, and none like the green of what is free.
export function hues(names) {
  const found = new Map();
  const taken = new Set();
  for (const name of [...names].sort()) {
    let place = 7;
    for (const letter of name) place = (place * 31 + letter.codePointAt(0)) % (PLACES * 997);
    place %= PLACES;
    for (let tried = 0; taken.has(place) && tried < PLACES; tried++) place = (place + 7) % PLACES;
    taken.add(place);
    found.set(name, Math.round(170 + (place * 290) / PLACES) % 360);
  }
  return found;
}

export async function copy(text) {
  await navigator.clipboard.writeText(text);
}

// Names as people count: m-2 before m-10.
export const byName = new Intl.Collator("en", { numeric: true }).compare;
