// What happened: the list that a run's page and the workspace's page show, and the latter.
import { Empty, When } from "./parts.js";

export const Events = {
  components: { When },
  inject: ["link"],
  props: { events: Array, runs: Boolean },
  methods: {
    href(event) {
      return `${this.link("runs", event.cluster, event.run_name)}?uid=${event.run_uid}`;
    },
  },
  template: `
    <ol class="events" :class="{ tall: runs }" tabindex="0" aria-label="Events, newest first"><li v-for="event in events" :key="event.id">
      <when :at="event.at"></when><b>{{ event.kind.replaceAll("_", " ") }}</b>
      <span><template v-if="runs && event.run_name"><a v-if="event.cluster" :href="href(event)">{{ event.run_name }}</a><template v-else>{{ event.run_name }}</template>: </template>{{ event.message }}</span>
      <span class="soft">{{ event.actor }}<template v-if="event.worker"> · {{ event.worker }}</template><template v-if="event.attempt"> · attempt {{ event.attempt }}</template></span></li></ol>`,
};

export const EventsPage = {
  components: { Empty, Events },
  inject: ["look"],
  props: { shown: Object },
  data() {
    return { search: new URLSearchParams(location.search).get("search") || "", timer: null };
  },
  methods: {
    typed() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.show(""), 200);
    },
    show(before) {
      const query = new URLSearchParams(this.search ? { search: this.search } : {});
      history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : ""));
      this.look({ search: this.search, before });
    },
  },
  template: `
    <div class="head"><h1>Events</h1><span v-if="shown.before" class="soft">older ones</span></div>
    <div class="filters" role="search"><input data-search type="search" v-model="search" @input="typed" placeholder="Search runs, words, people ( / )" aria-label="Search events"></div>
    <empty v-if="!shown.rows.length"><h2>{{ search ? "No event is like that" : "Nothing happened yet" }}</h2></empty>
    <section v-else class="card"><events :events="shown.rows" runs></events></section>
    <nav v-if="shown.more || shown.before" class="pager" aria-label="Pages of events">
      <button class="button" :disabled="!shown.before" @click="show('')">Newest</button>
      <button class="button" :disabled="!shown.more" @click="show(shown.rows.at(-1).id)">Older</button></nav>`,
};
