// A JSON editor: faults stand under their lines, and keys and values are completed from the schema.
import * as CM from "nicegui-codemirror";

const setFaults = CM.StateEffect.define();

class FaultWidget extends CM.WidgetType {
  constructor(text) {
    super();
    this.text = text;
  }
  eq(other) {
    return other.text === this.text;
  }
  toDOM() {
    const line = document.createElement("div");
    line.className = "cm-fault";
    line.textContent = this.text;
    return line;
  }
}

const faultField = CM.StateField.define({
  create: () => CM.Decoration.none,
  update(marks, change) {
    marks = marks.map(change.changes);
    for (const effect of change.effects) if (effect.is(setFaults)) marks = effect.value;
    return marks;
  },
  provide: (field) => CM.EditorView.decorations.from(field),
});

const unquoted = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return text.replaceAll('"', "");
  }
};

function children(node) {
  const found = [];
  for (let child = node.firstChild; child; child = child.nextSibling) found.push(child);
  return found;
}

// The node at a JSON pointer, or the nearest one around the place where it should be.
export function nodeAt(state, tree, pointer) {
  const text = (node) => state.sliceDoc(node.from, node.to);
  const values = (node) => children(node).filter((child) => /^(Object|Array|String|Number|True|False|Null)$/.test(child.name));
  let node = tree.topNode.firstChild;
  let named = node;
  for (const step of pointer.split("/").slice(1)) {
    const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
    if (node?.name === "Object") {
      const property = children(node).find((child) => child.name === "Property" && unquoted(text(child.firstChild)) === key);
      if (!property) break;
      named = property;
      node = values(property).at(-1);
    } else if (node?.name === "Array") {
      const item = values(node)[Number(key)];
      if (!item) break;
      named = node = item;
    } else break;
  }
  return named;
}

// The keys that lead to a place, with the object or array there.
function wayTo(state, node) {
  const way = [];
  for (; node; node = node.parent) {
    if (node.name === "Property") way.unshift(unquoted(state.sliceDoc(node.firstChild.from, node.firstChild.to)));
    if (node.parent?.name === "Array") way.unshift("0");
  }
  return way;
}

function resolve(schema, part) {
  return part?.$ref ? resolve(schema, schema.$defs[part.$ref.split("/").at(-1)]) : part;
}

// Every schema that a value at this way may follow.
function schemasAt(schema, way) {
  const spread = (part) => {
    const found = resolve(schema, part);
    return found ? [found, ...(found.anyOf || []).concat(found.oneOf || []).flatMap(spread)] : [];
  };
  let now = spread(schema.$defs?.Submission);
  for (const step of way) {
    now = now.flatMap((one) => spread(one.properties?.[step] || (one.items && step === "0" && one.items)));
  }
  return now;
}

function complete(schema) {
  return (context) => {
    const node = CM.syntaxTree(context.state).resolveInner(context.pos, -1);
    const word = context.matchBefore(/"?[\w.-]*/);
    if (!word || (word.from === word.to && !context.explicit)) return null;
    const before = context.state.sliceDoc(0, word.from).trimEnd().at(-1);
    const inValue = before === ":" || before === "[";
    let place = node;
    while (place && !["Object", "Array"].includes(place.name) && !(inValue && place.name === "Property")) place = place.parent;
    if (!place) return null;
    const found = schemasAt(schema, wayTo(context.state, place));
    const after = context.state.sliceDoc(context.pos, context.pos + 1) === '"' ? context.pos + 1 : context.pos;
    const option = (label, apply, detail, info) => ({ label, detail, info, type: "property",
      apply: (view, _, from, to) => view.dispatch({ changes: { from, to: Math.max(to, after), insert: apply },
        selection: { anchor: from + apply.length } }) });
    const options = inValue
      ? found.flatMap((one) => (one.enum || (one.const !== undefined ? [one.const] : one.type === "boolean" ? [true, false] : []))
          .map((value) => option(JSON.stringify(value), JSON.stringify(value), "", "")))
      : found.flatMap((one) => Object.entries(one.properties || {}).map(([name, part]) =>
          option(JSON.stringify(name), `${JSON.stringify(name)}: `, part.type || "", resolve(schema, part)?.description || "")));
    return options.length ? { from: word.from, options, validFor: /^"?[\w.-]*"?$/ } : null;
  };
}

function dark() {
  const theme = document.documentElement.dataset.theme;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

export const Editor = {
  props: { start: String, schema: Object, faults: Array },
  emits: ["changed"],
  expose: ["text", "replace", "goTo"],
  async mounted() {
    const language = await CM.languages.find((one) => one.name === "JSON").load();
    const theme = new CM.Compartment();
    const themed = () => (dark() ? CM.oneDark : []);
    this.view = new CM.EditorView({
      parent: this.$refs.place,
      doc: this.start,
      extensions: [
        CM.basicSetup, language, faultField, theme.of(themed()), CM.EditorView.lineWrapping,
        language.language.data.of({ autocomplete: complete(this.schema) }),
        CM.EditorView.contentAttributes.of({ "aria-label": "Specification as JSON" }),
        CM.EditorView.updateListener.of((update) => update.docChanged && this.$emit("changed", this.text())),
      ],
    });
    // A narrow editor scrolls; those without a pointer scroll what has the focus.
    this.view.scrollDOM.tabIndex = 0;
    this.watching = new MutationObserver(() => this.view.dispatch({ effects: theme.reconfigure(themed()) }));
    this.watching.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    this.mark();
    this.$emit("changed", this.text());
  },
  unmounted() {
    this.watching?.disconnect();
    this.view?.destroy();
  },
  watch: {
    faults() {
      this.mark();
    },
  },
  methods: {
    text() {
      return this.view ? this.view.state.doc.toString() : this.start;
    },
    replace(text) {
      this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
    },
    place(pointer) {
      const { state } = this.view;
      const tree = CM.ensureSyntaxTree(state, state.doc.length, 300) || CM.syntaxTree(state);
      return state.doc.lineAt(nodeAt(state, tree, pointer)?.from ?? 0);
    },
    lineOf(fault) {
      const { doc } = this.view.state;
      return fault.line ? doc.line(Math.min(fault.line, doc.lines)) : this.place(fault.pointer);
    },
    mark() {
      if (!this.view) return;
      const ranges = [];
      for (const fault of this.faults) {
        const line = this.lineOf(fault);
        const name = fault.pointer ? fault.pointer.split("/").at(-1).replaceAll("~1", "/").replaceAll("~0", "~") + " " : "";
        ranges.push(CM.Decoration.line({ class: "cm-faulty" }).range(line.from));
        ranges.push(CM.Decoration.widget({ widget: new FaultWidget(name + fault.message), block: true, side: 1 }).range(line.to));
      }
      this.view.dispatch({ effects: setFaults.of(CM.Decoration.set(ranges, true)) });
    },
    goTo(fault) {
      const line = this.lineOf(fault);
      this.view.dispatch({ selection: { anchor: line.from }, effects: CM.EditorView.scrollIntoView(line.from, { y: "center" }) });
      this.view.focus();
    },
  },
  template: `<div ref="place" class="editor"></div>`,
};
