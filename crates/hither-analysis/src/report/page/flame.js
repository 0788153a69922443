// Call stacks: the frames of one call site, and the flame graph of all of them. The outermost
// callers are at the top. Boxes are elements, so that they have focus, names and the page's fonts.

const fileOf = (path) => path.split("/").at(-1);

const frameName = (frame) =>
  frame.function ?? `${fileOf(frame.module)}+0x${frame.offset.toString(16)}`;

const framePlace = (frame) =>
  [frame.file ? `${frame.file}${frame.line ? `:${frame.line}` : ""}` : null, frame.module]
    .filter(Boolean)
    .join(" · ");

// All frames of a call site, innermost first, with file and line.
const stackList = ({ stacks }, position) => {
  const { frames, truncated } = stacks.stacks[position];
  if (frames.length === 0)
    return el("p", { class: "note" }, "The call stack of this call site is not on this page.");
  return el(
    "div",
    { class: "stack" },
    el("b", {}, "Call stack"),
    el(
      "ol",
      { start: "0" },
      frames.map((at) =>
        el(
          "li",
          {},
          el("span", { class: "mono" }, visible(frameName(stacks.frames[at]))),
          el("small", {}, visible(framePlace(stacks.frames[at]))),
        ),
      ),
    ),
    truncated ? el("small", {}, "The stack could not be followed further.") : null,
  );
};

// The tree of all stacks. A node has a weight for each of the `kinds`; the last of its `sites` are
// those that end in it.
const stackTree = (run, kinds) => {
  const { stacks, sites } = run;
  const node = (name, module, place, parent) => ({
    name,
    module,
    place,
    parent,
    weights: kinds.map(() => 0),
    children: new Map(),
    sites: new Set(),
  });
  const top = node("all", null, "", null);
  const add = (from, weights, position, steps) => {
    let at = from;
    const count = () => {
      weights.forEach((weight, kind) => (at.weights[kind] += weight));
      if (position !== null) at.sites.add(position);
    };
    count();
    for (const [name, module, place] of steps) {
      const key = `${module}\n${name}`;
      if (!at.children.has(key)) at.children.set(key, node(name, module, place, at));
      at = at.children.get(key);
      count();
    }
  };
  sites.forEach((site, position) => {
    const { frames } = stacks.stacks[position];
    const steps = frames
      .map((number) => stacks.frames[number])
      .map((frame) => [frameName(frame), frame.module, framePlace(frame)])
      .reverse();
    add(
      top,
      kinds.map((kind) => kind.of(position)),
      position,
      steps.length > 0 ? steps : [[site.label, site.module ?? "", ""]],
    );
  });
  const rest = kinds.map((kind, at) => Math.max(0, kind.all - top.weights[at]));
  if (rest.some((weight) => weight > 0))
    add(top, rest, null, [["call sites that are not on this page", "", ""]]);
  return top;
};

// A box narrower than this share of the graph is folded away.
const FOLDED_SHARE = 0.001;
const ROW_PIXELS = 22;

// The colours of the modules with the most references; the others are grey.
const moduleColours = (top) => {
  const weights = new Map();
  const count = (node, above) => {
    if (node.module && !above.has(node.module))
      weights.set(node.module, (weights.get(node.module) ?? 0) + node.weights[0]);
    const inside = new Set(above).add(node.module);
    for (const child of node.children.values()) count(child, inside);
  };
  count(top, new Set());
  const most = [...weights].sort(([, a], [, b]) => b - a).slice(0, SITE_COLOURS.length);
  return new Map(most.map(([module], at) => [module, SITE_COLOURS[at]]));
};

const flameGraph = (holder, run, { onSite }) => {
  const kinds = [
    {
      word: "references",
      noun: "reference",
      all: run.stats.references,
      of: (position) => run.sites[position].references,
    },
    ...run.stacks.misses.map((misses) => ({
      word: `misses of ${misses.policy} in ${bytes(misses.cache_blocks * run.stats.block_bytes)}`,
      noun: "miss",
      all: misses.all,
      of: (position) => misses.by_site[position],
    })),
  ];
  const top = stackTree(run, kinds);
  const colours = moduleColours(top);
  let kind = 0;
  let zoomed = top;
  let focused = top;
  let marked = null;
  let boxes = new Map();

  const graph = el("div", {
    class: "flame",
    role: "tree",
    "aria-label":
      "Flame graph of call stacks, callers above. Arrow keys move between frames, Enter enlarges " +
      "a frame, Escape shows all.",
  });
  const status = el("div", { class: "status", "aria-live": "polite" });
  const note = el("p", { class: "note" });

  const said = (node) => {
    const { noun, all } = kinds[kind];
    const weight = node.weights[kind];
    const own = weight - sum(node.children.values());
    return (
      `${visible(node.name)}: ${percent(weight / Math.max(1, all))}, ${counted(weight, noun)}` +
      (own > 0 && own < weight ? `, ${count(own)} of them in no frame below` : "")
    );
  };
  const sum = (nodes) => [...nodes].reduce((all, node) => all + node.weights[kind], 0);

  const above = (node) => (node.parent ? [...above(node.parent), node.parent] : []);
  const children = (node) =>
    [...node.children.values()].sort((a, b) => b.weights[0] - a.weights[0]);

  const draw = () => {
    boxes = new Map();
    const whole = Math.max(1, zoomed.weights[kind]);
    let folded = 0;
    let depth = 0;
    const place = (node, row, left, width) => {
      depth = Math.max(depth, row);
      const tint = colours.get(node.module) ?? "rest";
      const box = el(
        "div",
        {
          class: node.parent && row >= above(zoomed).length ? "frame" : "frame passed",
          role: "treeitem",
          tabindex: "-1",
          "aria-level": String(row + 1),
          "aria-label": said(node),
        },
        visible(node.name),
      );
      box.style.setProperty("--tint", `var(--${tint})`);
      box.style.left = `${left * 100}%`;
      box.style.width = `${width * 100}%`;
      box.style.top = `${row * ROW_PIXELS}px`;
      box.addEventListener("click", () => choose(node));
      box.addEventListener("focus", () => {
        focused = node;
        tell(node);
      });
      box.addEventListener("pointermove", (event) =>
        showTip(event.clientX, event.clientY, `${said(node)}\n${visible(node.place)}`),
      );
      box.addEventListener("pointerleave", hideTip);
      boxes.set(node, box);
      graph.append(box);
    };
    const fill = (node, row, left) => {
      place(node, row, left, node.weights[kind] / whole);
      let at = left;
      for (const child of children(node)) {
        const width = child.weights[kind] / whole;
        if (width >= FOLDED_SHARE) fill(child, row + 1, at);
        else if (width > 0) folded += 1;
        at += width;
      }
    };
    graph.replaceChildren();
    const passed = above(zoomed);
    passed.forEach((node, row) => place(node, row, 0, 1));
    fill(zoomed, passed.length, 0);
    graph.style.height = `${(depth + 1) * ROW_PIXELS}px`;
    if (!boxes.has(focused)) focused = zoomed;
    boxes.get(focused).tabIndex = 0;
    note.textContent =
      "A frame is as wide as its share. A click enlarges it, and one on the first frame shows " +
      "all. Colours are modules." +
      (folded > 0 ? ` ${counted(folded, "frame")} below 0.1 % folded away.` : "");
    mark();
    tell(focused);
  };

  const tell = (node) => {
    for (const [other, box] of boxes) box.tabIndex = other === node ? 0 : -1;
    status.textContent = [said(node), visible(node.place)].filter(Boolean).join(" · ");
  };

  const mark = () => {
    for (const [node, box] of boxes) {
      box.classList.toggle("on", marked !== null && node.sites.has(marked));
      box.classList.toggle("off", marked !== null && !node.sites.has(marked));
    }
  };

  // Enlarges a frame. The frame of one call site alone also chooses that.
  const choose = (node) => {
    zoomed = node;
    focused = node;
    draw();
    boxes.get(node).focus({ preventScroll: true });
    if (node.sites.size === 1 && node.children.size === 0) onSite([...node.sites][0]);
  };

  const shownChildren = (node) => children(node).filter((child) => boxes.has(child));
  const beside = (step) => {
    if (!focused.parent) return null;
    const row = shownChildren(focused.parent);
    return row[row.indexOf(focused) + step];
  };
  const keys = {
    ArrowDown: () => shownChildren(focused)[0],
    ArrowUp: () => focused.parent,
    ArrowLeft: () => beside(-1),
    ArrowRight: () => beside(1),
    Home: () => top,
  };
  graph.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") choose(focused);
    else if (event.key === "Escape") {
      choose(top);
      onSite(null);
    } else if (keys[event.key]) boxes.get(keys[event.key]())?.focus();
    else return;
    event.preventDefault();
  });

  const buttons = kinds.map(({ word }, at) => {
    const button = el("button", { type: "button", "aria-pressed": String(at === 0) }, word);
    button.addEventListener("click", () => {
      kind = at;
      if (zoomed.weights[kind] === 0) zoomed = top;
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      draw();
    });
    return button;
  });
  const modules = [...colours];
  const names = distinctly(
    modules.map(([module]) => fileOf(module)),
    modules.map(([module]) => module),
    40,
  );
  const legend = modules.map(([, name], at) => {
    const glyph = el("span", { class: "swatch" });
    glyph.style.setProperty("--tint", `var(--${name})`);
    return el("span", { class: "key" }, glyph, el("span", {}, names[at]));
  });
  holder.append(
    ...(kinds.length > 1
      ? [
          el(
            "div",
            { class: "controls" },
            el(
              "div",
              { class: "group", role: "group", "aria-label": "Width" },
              el("span", { class: "label" }, "Width"),
              ...buttons,
            ),
          ),
        ]
      : []),
    el("div", { class: "legend", "aria-label": "Modules" }, legend),
    graph,
    status,
    note,
  );
  draw();
  return {
    select: (position) => {
      marked = position;
      mark();
    },
  };
};
