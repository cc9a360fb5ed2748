// The queue of a cluster, in the order in which the next pass goes through it.
import { ClusterPick, Empty, StartsBy, When } from "./parts.js";

export const Queue = {
  components: { ClusterPick, Empty, StartsBy, When },
  inject: ["link"],
  props: { shown: Object },
  methods: { percent: (part) => `${Math.round(100 * part)} %` },
  template: `
    <div class="head"><h1>Queue</h1><span class="soft">{{ shown.waiting }} waiting</span><span class="grow"></span><cluster-pick :clusters="shown.clusters" :cluster="shown.cluster"></cluster-pick></div>
    <empty v-if="!shown.rows.length"><h2>Nobody waits</h2><p>Runs that find no room at once wait here, by priority, then by when they were submitted.</p></empty>
    <div v-else class="table-wrap" tabindex="0"><table class="table"><thead><tr><th scope="col" class="num">#</th><th scope="col">Run</th><th scope="col" class="num">Priority</th>
        <th scope="col" class="num">GPUs</th><th scope="col">Submitted</th><th scope="col">Expected start</th><th scope="col">Why it waits</th></tr></thead>
      <tbody><tr v-for="(row, i) in shown.rows" :key="row.claim"><td class="num">{{ i + 1 }}</td>
        <th scope="row"><a v-if="row.ours" class="name" :href="link('runs', shown.cluster, row.run)">{{ row.run }}</a><template v-else>{{ row.run }} <span class="label">{{ row.workspace }}</span></template>
          <span v-if="row.attempt > 1" class="label">attempt {{ row.attempt }}</span></th>
        <td data-head="Priority" class="num">{{ row.priority }}</td><td data-head="GPUs" class="num">{{ row.gpus }}<template v-if="row.machines"> on {{ row.machines }}</template></td>
        <td data-head="Submitted"><when :at="row.submitted"></when></td>
        <td data-head="Expected start"><template v-if="row.now">now</template><starts-by v-else :at="row.start" :words="row.start_words"></starts-by><template v-if="!row.now && row.patience"><br><span class="soft">patience ends <when :at="row.patience"></when></span></template></td>
        <td data-head="Why" class="reason"><span>{{ row.reason }}</span><details v-if="row.blockers.length > 1"><summary>All {{ row.blockers.length }} blockers</summary><ul><li v-for="one in row.blockers" :key="one">{{ one }}</li></ul></details></td></tr></tbody></table></div>
    <div class="cards"><section class="card"><h2>Kept free for</h2><p v-if="!shown.reserved.length" class="soft">No GPU is reserved.</p>
        <p v-for="one in shown.reserved" :key="one.run"><b>{{ one.run }}</b>: {{ one.gpus }} GPUs on {{ one.machines }} machines</p></section>
      <section class="card wide"><h2>Shares now</h2><p v-if="!shown.shares.length" class="soft">Nobody holds a GPU.</p>
        <div v-for="one in shown.shares" :key="one.workspace" class="share"><span>{{ one.workspace }}</span><meter :value="one.gpus" :max="Math.max(one.of, 1)" :aria-label="one.workspace"></meter><span>{{ one.gpus }} of {{ one.quota === null ? "" : "its quota of " }}{{ one.of }} GPUs<template v-if="one.share !== null"><br><span class="soft">{{ percent(one.used) }} of GPU-hours ({{ one.hours.toFixed(1) }}) for a share of {{ percent(one.share) }}</span></template></span></div></section></div>`,
};
