// Drives, secrets (names only) and tokens (shown once, when made).
import { Empty, Question, When, copy } from "./parts.js";

const asking = {
  components: { Empty, Question, When },
  inject: ["act", "can"],
  props: { shown: Object },
  methods: {
    ask(which, values) {
      Object.assign(this, values);
      this.$refs[which].ask();
    },
    async give(name, values, { done, failed }) {
      try {
        const value = await this.act(name, values);
        done();
        return value;
      } catch (error) {
        failed(error);
      }
    },
  },
};

export const Drives = {
  mixins: [asking],
  data: () => ({ name: "", kind: "machine", path: "", chosen: "" }),
  template: `
    <div class="head"><h1>Drives</h1><span class="grow"></span><button v-if="can('editor')" class="button main" @click="ask('make', { name: '', kind: 'machine', path: '' })">New drive</button></div>
    <empty v-if="!shown.rows.length"><h2>No drives yet</h2><p>A drive is a directory on each machine, or one that all machines share; runs mount it by its name.</p></empty>
    <div v-else class="table-wrap" tabindex="0"><table class="table"><thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col">Directory</th><th scope="col">Made</th><th v-if="can('editor')" scope="col">Orders</th></tr></thead>
      <tbody><tr v-for="row in shown.rows" :key="row.name"><th scope="row">{{ row.name }}</th><td data-head="Kind">{{ row.kind === "shared" ? "shared by all machines" : "on each machine" }}</td><td data-head="Directory">{{ row.path || "kept by the agent" }}</td>
        <td data-head="Made"><when :at="row.created_at"></when></td><td v-if="can('editor')"><button class="button danger" :aria-label="'Delete ' + row.name" @click="ask('remove', { chosen: row.name })">Delete</button></td></tr></tbody></table></div>
    <question ref="make" title="New drive" confirm="Make drive" @yes="give('put', { name, kind, path }, $event)"><label class="field">Name<input v-model="name" required maxlength="63"></label>
      <label class="field">Kind<select v-model="kind"><option value="machine">a directory on each machine</option><option value="shared">one directory that all machines share</option></select></label>
      <label class="field">Directory on the machines (empty: the agent keeps one)<input v-model="path" placeholder="/data/checkpoints"></label></question>
    <question ref="remove" title="Delete this drive?" confirm="Delete drive" danger @yes="give('delete', { name: chosen }, $event)"><p><b>{{ chosen }}</b></p><p>Its files stay on the machines.</p></question>`,
};

export const Secrets = {
  mixins: [asking],
  data: () => ({ name: "", value: "", chosen: "" }),
  methods: {
    async put(answer) {
      await this.give("put", { name: this.name, value: this.value }, answer);
      this.value = "";
    },
  },
  template: `
    <div class="head"><h1>Secrets</h1><span class="grow"></span><button v-if="can('editor')" class="button main" @click="ask('make', { name: '', value: '' })">New secret</button></div>
    <p class="soft">Only names are shown; values are sealed and never leave the server except into workers that ask for them by name.</p>
    <empty v-if="!shown.rows.length"><h2>No secrets yet</h2><p>Runs name them in <code>secret_env</code>.</p></empty>
    <div v-else class="table-wrap" tabindex="0"><table class="table"><thead><tr><th scope="col">Name</th><th v-if="can('editor')" scope="col">Orders</th></tr></thead>
      <tbody><tr v-for="row in shown.rows" :key="row.name"><th scope="row"><code>{{ row.name }}</code></th><td v-if="can('editor')" class="row"><button class="button" :aria-label="'Replace ' + row.name" @click="ask('make', { name: row.name, value: '' })">Replace</button>
        <button class="button danger" :aria-label="'Delete ' + row.name" @click="ask('remove', { chosen: row.name })">Delete</button></td></tr></tbody></table></div>
    <question ref="make" title="Set a secret" confirm="Save secret" @yes="put"><label class="field">Name<input v-model="name" required maxlength="256" placeholder="WANDB_API_KEY"></label>
      <label class="field">Value<input v-model="value" type="password" required autocomplete="off"></label></question>
    <question ref="remove" title="Delete this secret?" confirm="Delete secret" danger @yes="give('delete', { name: chosen }, $event)"><p><code>{{ chosen }}</code></p><p>Running workers keep it; later ones fail to start if they ask for it.</p></question>`,
};

export const Tokens = {
  mixins: [asking],
  data: () => ({ name: "", role: "editor", days: "90", cluster: "", chosen: "", id: "", made: "", copied: false }),
  methods: {
    async create(answer) {
      const made = await this.give("create", { name: this.name, role: this.role, days: this.days, cluster: this.role === "machine" ? this.cluster : "" }, answer);
      if (made) Object.assign(this, { made: made.token, copied: false });
    },
    async copyToken() {
      await copy(this.made);
      this.copied = true;
    },
    state(row) {
      if (row.revoked_at) return "revoked";
      return row.expires_at && row.expires_at * 1000 < Date.now() ? "expired" : "good";
    },
  },
  template: `
    <div class="head"><h1>Tokens</h1><span class="grow"></span><button class="button main" @click="ask('make', { name: '', role: 'editor', days: '90', cluster: '' })">New token</button></div>
    <section v-if="made" class="card note" role="status"><h2>The new token</h2><p>It is shown this once. Keep it where secrets are kept.</p><p class="row"><code class="token">{{ made }}</code>
      <button class="button" @click="copyToken">{{ copied ? "Copied" : "Copy" }}</button><button class="button" @click="made = ''">Hide</button></p></section>
    <empty v-if="!shown.rows.length"><h2>No tokens of this workspace</h2></empty>
    <div v-else class="table-wrap" tabindex="0"><table class="table"><thead><tr><th scope="col">Name</th><th scope="col">Role</th><th scope="col">State</th><th scope="col">Made</th><th scope="col">Last used</th><th scope="col">Expires</th><th scope="col">Orders</th></tr></thead>
      <tbody><tr v-for="row in shown.rows" :key="row.id"><th scope="row">{{ row.name }}</th><td data-head="Role">{{ row.role }} <span v-if="row.cluster" class="label">{{ row.cluster }}</span></td>
        <td data-head="State"><span class="chip" :class="state(row) === 'good' ? 'is-running' : 'is-cancelled'">{{ state(row) }}</span></td><td data-head="Made"><when :at="row.created_at"></when></td>
        <td data-head="Last used"><when :at="row.last_used_at"></when></td><td data-head="Expires"><when v-if="row.expires_at" :at="row.expires_at"></when><span v-else>never</span></td>
        <td><button v-if="!row.revoked_at" class="button danger" :aria-label="'Revoke ' + row.name" @click="ask('revoke', { chosen: row.name, id: row.id })">Revoke</button></td></tr></tbody></table></div>
    <question ref="make" title="New token" confirm="Make token" @yes="create"><label class="field">Name<input v-model="name" required maxlength="63" placeholder="who or what uses it"></label>
      <label class="field">Role<select v-model="role"><option value="viewer">viewer: looks</option><option value="editor">editor: starts and stops runs</option><option value="admin">admin: machines and tokens too</option><option value="machine">machine: agents</option></select></label>
      <label v-if="role === 'machine'" class="field">Cluster<select v-model="cluster"><option value="">the workspace's own</option><option v-for="one in shown.clusters" :key="one">{{ one }}</option></select></label>
      <label class="field">Good for so many days (empty: for ever)<input v-model="days" inputmode="numeric" pattern="[0-9]*"></label></question>
    <question ref="revoke" title="Revoke this token?" confirm="Revoke token" danger @yes="give('revoke', { id }, $event)"><p><b>{{ chosen }}</b></p><p>Whoever uses it is turned away within seconds.</p></question>`,
};
