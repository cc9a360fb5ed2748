// Around every page: where one is, where one can go, who one is; and what is shown when a page cannot be.
const PLACES = [
  ["runs", "Runs"],
  ["queue", "Queue"],
  ["events", "Events"],
  ["topology", "Topology"],
  ["machines", "Machines"],
  ["templates", "Templates"],
  ["drives", "Drives"],
  ["secrets", "Secrets"],
  ["tokens", "Tokens"],
];
const INSIDE = { new: "runs", run: "runs", machine: "machines" };
const THEMES = ["auto", "light", "dark"];

function kept() {
  try {
    const theme = localStorage.getItem("astraeus-theme");
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto";
  }
}

function show(theme) {
  document.documentElement.dataset.theme = theme;
}
show(kept());

export const Frame = {
  inject: ["link", "can"],
  props: { frame: Object, page: String },
  data() {
    return { theme: kept(), places: PLACES };
  },
  computed: {
    here() {
      return INSIDE[this.page] || this.page;
    },
    shownPlaces() {
      return PLACES.filter(([name]) => name !== "tokens" || this.can("admin") || this.page === "tokens");
    },
  },
  mounted() {
    document.getElementById("popup")?.setAttribute("role", "alert");
    document.addEventListener("keydown", this.key);
    // On a narrow page the places are one line, which may begin to the left of this one.
    const here = document.querySelector(".side [aria-current]");
    if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.clientWidth / 2;
  },
  unmounted() {
    document.removeEventListener("keydown", this.key);
  },
  methods: {
    turn() {
      this.theme = THEMES[(THEMES.indexOf(this.theme) + 1) % THEMES.length];
      show(this.theme);
      try {
        localStorage.setItem("astraeus-theme", this.theme);
      } catch {
        // Kept for this page only.
      }
    },
    key(event) {
      const typing = event.target.closest?.("input, textarea, select, dialog, [contenteditable=true]");
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/") {
        const search = document.querySelector("[data-search]");
        if (search) {
          search.focus();
          event.preventDefault();
        }
      }
      if (event.key === "n" && this.can("editor")) location.assign(this.link("runs", "new"));
    },
  },
  template: `
    <div class="frame">
      <a class="skip" href="#main">Skip to the content</a>
      <header class="top">
        <a class="brand" :href="link('runs')">Astraeus</a>
        <span class="place" :title="frame.org + '/' + frame.workspace">{{ frame.org }}/{{ frame.workspace }}</span>
        <span class="grow"></span>
        <span v-if="frame.user" class="who" :title="'Signed in with the token ' + frame.user">{{ frame.user }}
          <span class="soft">· {{ frame.role }}</span></span>
        <button class="button quiet" type="button" @click="turn" :aria-label="'Theme: ' + theme + '; change it'">
          {{ { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" }[theme] }}</button>
        <form method="post" action="/sign-out"><button class="button quiet">Sign out</button></form>
      </header>
      <nav class="side" aria-label="Pages">
        <a v-for="[name, title] in shownPlaces" :key="name" :href="link(name)"
          :aria-current="name === here ? 'page' : null">{{ title }}</a>
        <a v-if="frame.temporal" class="apart" :href="frame.temporal" target="_blank" rel="noopener">Temporal ↗</a>
        <a href="/openapi.json" :class="{ apart: !frame.temporal }">API</a>
      </nav>
      <div id="main" class="content" tabindex="-1"><slot></slot></div>
    </div>`,
};

const WORDS = {
  "not-signed-in": "You are not signed in any more",
  "not-allowed": "Not allowed",
  "not-found": "Not here",
  away: "Away for now",
};

export const Problem = {
  inject: ["look"],
  props: { shown: Object },
  data() {
    return { back: encodeURIComponent(location.pathname + location.search) };
  },
  computed: {
    title() {
      return WORDS[this.shown.status] || "This did not work";
    },
  },
  template: `
    <section class="state problem" role="alert">
      <h1>{{ title }}</h1>
      <p>{{ shown.message }}</p>
      <p v-if="shown.retryable" class="soft">The page asks again by itself.</p>
      <a v-if="shown.status === 'not-signed-in'" class="button main" :href="'/sign-in?next=' + back">Sign in</a>
      <button v-else-if="shown.status !== 'not-allowed'" class="button" @click="look({})">Try again</button>
    </section>`,
};
