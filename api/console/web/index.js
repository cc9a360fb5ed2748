// Every page by its name.
import { Drives, Secrets, Tokens } from "./belongings.js";
import { EventsPage } from "./events.js";
import { Frame, Problem } from "./frame.js";
import { Machine, Machines } from "./machines.js";
import { NewRun } from "./new.js";
import { Queue } from "./queue.js";
import { Run } from "./run.js";
import { Runs } from "./runs.js";
import { Templates } from "./templates.js";
import { Topology } from "./topology.js";

export { Frame, Problem };

export const pages = {
  "page-runs": Runs,
  "page-new": NewRun,
  "page-run": Run,
  "page-topology": Topology,
  "page-machines": Machines,
  "page-machine": Machine,
  "page-queue": Queue,
  "page-events": EventsPage,
  "page-templates": Templates,
  "page-drives": Drives,
  "page-secrets": Secrets,
  "page-tokens": Tokens,
};
