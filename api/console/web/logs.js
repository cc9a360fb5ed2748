// A worker's log: bytes as they come, decoded once, kept as lines, and only the lines in sight are drawn.
const LINE = 18;
const LINES_MOST = 500_000;
const LONGEST = 20_000;
const TAIL = 2000;
const CONTROL = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b[@-Z\\-_]|[\u0000-\u0008\u000b-\u001f\u007f]/g;

function clean(line) {
  const shown = line.slice(line.lastIndexOf("\r", line.length - 2) + 1).replace(CONTROL, "");
  return shown.length > LONGEST ? shown.slice(0, LONGEST) + "… (a long line, cut)" : shown;
}

export const Logs = {
  inject: ["link"],
  props: { run: Object, attempts: Array, worker: Object, alone: Boolean },
  data() {
    return {
      rank: 0, attempt: null, follow: true, all: false, search: "", only: false, hit: -1,
      version: 0, tail: TAIL, top: 0, height: 400, status: "", error: "", dropped: 0,
    };
  },
  computed: {
    ranks() {
      if (this.alone) return this.run.workers.map((worker) => worker.rank);
      const wanted = this.attempt || this.newest;
      return this.attempts.find((attempt) => attempt.attempt === wanted)?.machines.map((_, rank) => rank) || [];
    },
    numbers() {
      const of = this.alone && `${this.run.metadata.name}-${this.rank}`;
      const placed = this.attempts.filter((attempt) => attempt.placed_at && (!of || attempt.worker === of));
      return placed.map((attempt) => attempt.attempt).reverse();
    },
    newest() {
      return this.numbers[0];
    },
    // Numbers of the lines that hold the search; read through `version`, since the lines themselves are not reactive.
    hits() {
      const wanted = this.search.toLowerCase();
      if (!wanted || this.version < 0) return [];
      const hits = [];
      for (let i = 0; i < this.lines.length; i++) if (this.lines[i].toLowerCase().includes(wanted)) hits.push(i);
      return hits;
    },
    filtered() {
      return this.only && this.search;
    },
    // The worker's whole log as it was written, as a file.
    whole() {
      return this.address({ attempt: this.attempt || this.newest });
    },
    file() {
      return `${this.run.metadata.name}-${this.rank}-attempt-${this.attempt || this.newest}.log`;
    },
    count() {
      return this.version >= 0 && (this.filtered ? this.hits.length : this.lines.length);
    },
    inSight() {
      // The last line changes though there are no more of them.
      if (this.version < 0) return [];
      const first = Math.max(0, Math.floor(this.top / LINE) - 20);
      const end = Math.min(this.count, Math.ceil((this.top + this.height) / LINE) + 20);
      return Array.from({ length: Math.max(0, end - first) }, (_, i) => {
        const number = this.filtered ? this.hits[first + i] : first + i;
        return { at: first + i, number, text: this.lines[number] };
      });
    },
  },
  created() {
    this.lines = [];
  },
  mounted() {
    this.load();
  },
  unmounted() {
    this.stop?.abort();
  },
  watch: {
    // A new object for each click, since the same tile may be clicked again after another was chosen here.
    worker(asked) {
      if (asked) this.choose(asked.rank);
    },
    "run.metadata.uid"() {
      this.attempt = null;
      this.load();
    },
    // The next attempt has a place, and so a log.
    newest() {
      if (this.attempt === null) this.load();
    },
  },
  methods: {
    // Attempts of workers that start one by one are numbered for each.
    choose(rank) {
      this.rank = rank;
      if (this.alone) this.attempt = null;
      this.load();
    },
    // By the uid, since a newer run may have the name.
    address(query) {
      const { name, uid } = this.run.metadata;
      return `${this.link("runs", this.run.cluster, uid, "logs", `${name}-${this.rank}`)}?${new URLSearchParams(query)}`;
    },
    async load() {
      this.stop?.abort();
      const stop = (this.stop = new AbortController());
      this.lines = [];
      if (!this.newest) {
        Object.assign(this, { version: this.version + 1, error: "", status: "Not placed yet." });
        return;
      }
      Object.assign(this, { version: this.version + 1, error: "", dropped: 0, hit: -1, status: "Asking the machine…" });
      const part = this.all ? {} : { tail: TAIL };
      try {
        const answer = await fetch(this.address({ follow: 1, attempt: this.attempt || this.newest, ...part }), { signal: stop.signal });
        if (!answer.ok) throw new Error((await answer.json()).detail);
        this.status = "Live";
        await this.read(answer.body.getReader());
        this.status = "Ended";
      } catch (error) {
        if (stop.signal.aborted) return;
        this.status = "";
        this.error = error.message || "The log broke off.";
      }
    },
    async read(reader) {
      const decoder = new TextDecoder();
      let rest = "";
      let begun = false; // The last line has no end yet: a progress bar, say.
      for (;;) {
        const { value, done } = await reader.read();
        const parts = (rest + (done ? decoder.decode() : decoder.decode(value, { stream: true }))).split("\n");
        rest = parts.pop();
        if (rest.length > 4 * LONGEST) rest = rest.slice(-LONGEST);
        if (begun) this.lines.pop();
        for (const part of parts) this.lines.push(clean(part));
        begun = rest !== "";
        if (begun) this.lines.push(clean(rest));
        this.trim();
        this.drawSoon();
        if (done) return;
      }
    },
    trim() {
      const over = this.lines.length - LINES_MOST;
      if (over > LINES_MOST / 10) {
        this.lines.splice(0, over);
        this.dropped += over;
      }
    },
    drawSoon() {
      if (this.drawing) return;
      this.drawing = requestAnimationFrame(() => {
        this.drawing = 0;
        this.version++;
        this.$nextTick(() => {
          const box = this.$refs.box;
          if (box && this.follow) box.scrollTop = box.scrollHeight;
        });
      });
    },
    scrolled() {
      const box = this.$refs.box;
      this.top = box.scrollTop;
      this.height = box.clientHeight;
      this.follow = box.scrollHeight - box.scrollTop - box.clientHeight < 2 * LINE;
    },
    find(step) {
      if (!this.hits.length) return;
      this.follow = false;
      this.hit = (this.hit + step + this.hits.length) % this.hits.length;
      this.$refs.box.scrollTop = (this.filtered ? this.hit : this.hits[this.hit]) * LINE - this.height / 2;
    },
    parts(text) {
      const wanted = this.search.toLowerCase();
      if (!wanted) return [[text, false]];
      const found = [];
      const lower = text.toLowerCase();
      let from = 0;
      for (let at = lower.indexOf(wanted); at >= 0 && found.length < 200; at = lower.indexOf(wanted, from)) {
        found.push([text.slice(from, at), false], [text.slice(at, at + wanted.length), true]);
        from = at + wanted.length;
      }
      return [...found, [text.slice(from), false]];
    },
  },
  template: `
    <section class="card logs"><div class="head"><h2>Logs</h2>
      <label class="field inline">Worker <select :value="rank" @change="choose(Number($event.target.value))"><option v-for="one in ranks" :key="one" :value="one">{{ run.metadata.name }}-{{ one }}</option></select></label>
      <label class="field inline">Attempt <select v-model="attempt" @change="load"><option :value="null">latest</option><option v-for="one in numbers" :key="one" :value="one">{{ one }}</option></select></label>
      <label class="check"><input type="checkbox" v-model="all" @change="load"> from the beginning</label>
      <span class="grow"></span>
      <form class="row" @submit.prevent="find(1)"><input type="search" v-model="search" @input="hit = -1" placeholder="Search the log" aria-label="Search the log">
        <button class="button" type="button" @click="find(-1)" :disabled="!hits.length" aria-label="Hit before">↑</button>
        <button class="button" :disabled="!hits.length" aria-label="Next hit">↓</button>
        <span v-if="search" class="soft" role="status">{{ hit >= 0 ? hit + 1 + " of " : "" }}{{ hits.length }} lines</span></form>
      <label class="check"><input type="checkbox" v-model="only"> only hits</label></div>
    <p v-if="error" class="note bad-note" role="alert">{{ error }} <button class="button" @click="load">Try again</button></p>
    <div ref="box" class="log" tabindex="0" role="log" aria-live="off" :aria-label="'Log of worker ' + rank" @scroll.passive="scrolled">
      <div class="lines" :style="{ height: count * 18 + 'px' }">
        <div v-for="line in inSight" :key="line.at" class="line" :class="{ hit: hits[hit] === line.number }" :style="{ top: line.at * 18 + 'px' }"><template
          v-for="[part, found] in parts(line.text)"><mark v-if="found">{{ part }}</mark><template v-else>{{ part }}</template></template></div></div></div>
    <p class="soft"><template v-if="status">{{ status }} · </template>{{ (count || 0).toLocaleString() }} {{ count === 1 ? "line" : "lines" }}<template v-if="dropped"> (the first {{ dropped.toLocaleString() }} are not kept here)</template><template
      v-if="!all && count >= tail">, from the last ${TAIL.toLocaleString()} on</template> · <a :href="whole" :download="file">Download it all</a>
      <button v-if="!follow" class="button quiet" @click="follow = true; drawSoon()">Follow the end ↓</button></p></section>`,
};
