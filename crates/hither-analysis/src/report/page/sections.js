// The sections about one run. Every number is taken from the page's data; only the layout is
// computed here.

const tile = (name, value, note) =>
  el(
    "div",
    { class: "tile" },
    el("dt", {}, name),
    el("dd", { "data-figure": name }, value, note ? el("small", {}, note) : null),
  );

const commandOf = (run) =>
  run.trace.command.length > 0 ? run.trace.command.join(" ") : run.trace.path;

// The confidence in one word, and a bar for each segment of the trace: upwards for a gain,
// downwards for a loss, grey where the cache is not full yet.
const sureness = (confidence) => {
  if (!confidence) return null;
  const { gains, warm_up: warmUp } = confidence;
  const most = Math.max(...gains, 0);
  const scale = 28 / Math.max(most - Math.min(...gains, 0), 0.02);
  const wide = 240 / Math.max(gains.length, 1);
  const points = gains.map((gain) => fixed(gain * 100, 1)).join(", ");
  const label = `gain in points of hit ratio in each segment of the trace: ${points}`;
  const strip = stripOf(
    gains,
    (ctx, gain, at) => {
      if (gain === 0) return;
      ctx.fillStyle = colour(at < warmUp ? "rest" : gain > 0 ? "better" : "worse");
      const height = Math.max(2, Math.abs(gain) * scale);
      ctx.fillRect(at * wide, gain > 0 ? most * scale - height : most * scale, wide - 2, height);
    },
    label,
  );
  strip.title = label;
  themed.push(() => strip.isConnected && strip.redraw());
  return el(
    "span",
    { class: "sureness" },
    el(
      "span",
      { class: `badge ${confidence.level}`, "data-figure": "confidence" },
      confidence.level,
    ),
    strip,
  );
};

const verdictSection = (holder, run) => {
  const { stats, bytes: moved, advice } = run;
  const memory = run.kind === "memory";
  const change = {
    policy: `Use ${advice.policy}`,
    size: "Use a larger cache",
    nothing: "Change nothing",
    unknown: "No verdict",
  }[advice.change];
  // What is not sure stands out less.
  const shade = advice.confidence?.level === "unsure" ? "unsure" : advice.change;
  // What costs reads here, or a run cannot apply, is no change to recommend at a glance.
  const isForHere =
    !(run.fits || advice.obstacle) || !["policy", "size"].includes(advice.change);
  const badges = memory
    ? null
    : el(
        "div",
        { class: "badges" },
        isForHere ? el("span", { class: `badge ${shade}` }, change) : null,
        sureness(advice.confidence),
      );
  const [first, ...others] = run.sentences;
  const took = stats.counts.last_ns - stats.counts.first_ns;
  const tiles = [
    tile(
      "references",
      count(stats.references),
      stats.accesses !== stats.references ? counted(stats.accesses, "access") : null,
    ),
    tile(
      `distinct ${memory ? "pages" : "blocks"}`,
      count(stats.blocks),
      bytes(stats.footprint_bytes),
    ),
    stats.counts.total.requests > 0
      ? tile(
          "requests",
          count(stats.counts.total.requests),
          `${percent(stats.sequential_share)} sequential`,
        )
      : null,
    stats.counts.total.requests > 0
      ? tile("read", bytes(moved.read), `${bytes(moved.written)} written`)
      : null,
    stats.objects > 0
      ? tile(
          memory ? "regions" : "files",
          count(stats.objects),
          `${count(stats.object_concentration.for_90_percent)} make 90 % of references`,
        )
      : null,
    run.sites.length > 0
      ? tile(
          "call sites",
          count(stats.sites),
          `${count(stats.site_concentration.for_90_percent)} make 90 % of references`,
        )
      : null,
    tile("processes", count(stats.processes), counted(stats.threads, "thread")),
    took > 0 ? tile("recorded for", duration(took)) : null,
  ];
  const copy = el("button", { type: "button" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(run.apply);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(copy.previousElementSibling);
    }
  });
  holder.append(
    el("div", { class: "command" }, visible(shortened(commandOf(run), 400))),
    ...[
      run.seen && el("p", { class: "lead", "data-figure": "seen" }, visible(run.seen)),
      badges,
    ].filter(Boolean),
    el("p", { class: "headline" }, visible(first ?? "")),
    ...(others.length > 0
      ? [
          el(
            "ul",
            { class: "more" },
            others.map((sentence) => el("li", {}, visible(sentence))),
          ),
        ]
      : []),
    ...(run.apply
      ? [
          el(
            "div",
            { class: "apply" },
            el("code", {}, run.apply.split("\n").map(visible).join("\n")),
            copy,
          ),
        ]
      : []),
    el("dl", { class: "tiles" }, tiles),
  );
};

// The points of a curve and the results of the table, sorted by size.
const withTable = (points, results, blockBytes) => {
  const all = new Map(points);
  for (const result of results) all.set(result.cache_blocks * blockBytes, result.hit_ratio);
  return [...all].sort(([a], [b]) => a - b);
};

const ratiosSection = (holder, run) => {
  const blockBytes = run.stats.block_bytes;
  if (run.curves.length === 0 || run.stats.references === 0) {
    holder.append(el("p", { class: "lead" }, "Nothing was referenced."));
    return;
  }
  const styles = policyStyles(run.curves.map((curve) => curve.policy));
  const tabled = run.curves.map((_, index) =>
    run.results.slice(index * run.sizes.length, (index + 1) * run.sizes.length),
  );
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Policies" });
  const plot = el("div", { class: "chart" });
  holder.append(legend, plot);
  const { cache_blocks: advised, policy } = run.advice;
  lineChart(plot, {
    label: "Hit ratio of each policy by the size of the cache; the table below has the numbers.",
    lines: run.curves.map((curve, index) => ({
      label: curve.policy,
      style: styles[index],
      points: withTable(
        curve.cache_blocks.map((blocks, at) => [blocks * blockBytes, curve.hit_ratio[at]]),
        tabled[index],
        blockBytes,
      ),
    })),
    both: legend,
    log: false,
    x: { label: "cache size", log: 2, values: shortBytes, tip: (at) => `cache of ${bytes(at)}` },
    y: { range: [0, 1], values: percent },
    legend,
    mark: advised
      ? { at: advised * blockBytes, word: policy ? `advised: ${policy}` : "enough" }
      : null,
  });
  if (run.sizes.length === 0) return;
  const rows = tabled.map((cells, index) => ({
    name: cells[0].policy,
    label: run.curves[index].policy,
    cells,
  }));
  const best = run.sizes.map((_, size) =>
    Math.max(...rows.filter((row) => row.name !== "opt").map((row) => row.cells[size].hit_ratio)),
  );
  table(holder, {
    noun: "policy",
    caption: "Hit ratio by policy and cache size",
    filter: false,
    limit: 100,
    rows,
    columns: [
      { head: "hit ratio", class: "short", text: (row) => row.label },
      ...run.sizes.map((size, index) => ({
        head: el(
          "span",
          {},
          size.size,
          el("br"),
          el("small", {}, `(${bytes(size.cache_blocks * blockBytes)})`),
        ),
        plain: true,
        value: (row) => row.cells[index].hit_ratio,
        text: (row) => percent(row.cells[index].hit_ratio),
        cell: (row) =>
          el(
            "span",
            {
              title:
                `${count(row.cells[index].hits)} hits, ` +
                `${count(row.cells[index].misses)} misses`,
            },
            percent(row.cells[index].hit_ratio),
          ),
      })),
    ],
  });
  holder.querySelectorAll("tbody tr").forEach((tr, at) => {
    run.sizes.forEach((_, size) => {
      if (
        rows[at].name !== "opt" &&
        rows[at].cells[size].hit_ratio === best[size] &&
        best[size] > 0
      )
        tr.children[size + 1].classList.add("best");
    });
  });
  holder.append(
    el(
      "p",
      { class: "note" },
      "Bold: the best at that size, without opt, which knows the future. The lines have marks, " +
        "so that policies differ in grey too.",
    ),
  );
};

// A strip with the share of each class in the references, in sixty parts of the trace.
const STRIP = 60;

const classStrips = (run, cells) => {
  const { picture, stats } = run;
  const shown = Math.min(run.sites.length, picture.sites.length);
  const parts = new Float64Array(shown * STRIP * 4);
  for (let column = 0; column < picture.columns; column++) {
    const part = Math.min(
      STRIP - 1,
      Math.floor((column * picture.column_references * STRIP) / Math.max(1, stats.references)),
    );
    for (let cell = cells.start[column]; cell < cells.start[column + 1]; cell++) {
      if (cells.site[cell] < shown)
        parts[(cells.site[cell] * STRIP + part) * 4 + cells.kind[cell]] += cells.count[cell];
    }
  }
  return parts;
};

const stripOf = (values, paint, label) => {
  const canvas = el("canvas", {
    class: "strip",
    role: "img",
    "aria-label": label,
    width: 240,
    height: 28,
  });
  const draw = () => {
    const ctx = canvas.getContext("2d");
    ctx.clearRect(0, 0, 240, 28);
    ctx.fillStyle = colour("soft");
    ctx.fillRect(0, 0, 240, 28);
    values.forEach((value, at) => paint(ctx, value, at));
  };
  canvas.redraw = draw;
  draw();
  return canvas;
};

const classStrip = (parts, position) => {
  const values = Array.from({ length: STRIP }, (_, part) => [
    ...parts.subarray((position * STRIP + part) * 4, (position * STRIP + part) * 4 + 4),
  ]);
  const most = Math.max(1, ...values.map((value) => value.reduce((sum, one) => sum + one, 0)));
  const sums = [0, 1, 2, 3].map((which) => values.reduce((sum, value) => sum + value[which], 0));
  const label = `over time: ${[1, 2, 3]
    .filter((which) => sums[which] > 0)
    .map((which) => `${count(sums[which])} ${CLASSES[which]}`)
    .join(", ")}`;
  return stripOf(
    values,
    (ctx, value, at) => {
      const all = value.reduce((sum, one) => sum + one, 0);
      if (all === 0) return;
      const height = 8 + 20 * (all / most);
      let top = 28;
      for (const which of [2, 1, 3, 0]) {
        const part = (height * value[which]) / all;
        ctx.fillStyle = colour(CLASS_COLOURS[which]);
        ctx.fillRect(at * 4, top - part, 4, part);
        top -= part;
      }
    },
    label,
  );
};

const activityStrip = (values) => {
  const most = Math.max(1, ...values);
  return stripOf(
    values,
    (ctx, value, at) => {
      if (value === 0) return;
      ctx.fillStyle = colour("c0");
      const height = 3 + 25 * (value / most);
      ctx.fillRect(at * 4, 28 - height, 4, height);
    },
    "references over time",
  );
};

const shareCell = (share) => {
  const meter = el("span", { class: "meter" });
  meter.style.width = `${Math.max(1, share * 60)}px`;
  return el("span", {}, meter, percent(share));
};

const programOf = (process) =>
  process
    ? process.exe.split("/").at(-1) ||
      (process.pid ? `pid ${process.pid}` : `process ${process.process}`)
    : "";

const sitesSection = (holder, run, cells, pick) => {
  if (run.sites.length === 0) {
    holder.append(
      el(
        "p",
        { class: "lead" },
        "This trace has no call sites; `hither record` makes traces that have them.",
      ),
    );
    return null;
  }
  const parts = classStrips(run, cells);
  const tallies = new Map(run.stats.by_site.map((row) => [row.number, row]));
  const processes = new Map(run.processes.map((process) => [process.process, process]));
  const rows = run.sites.map((site, position) => ({
    site,
    position,
    row: tallies.get(site.site),
    strip: null,
  }));
  const place = (site) =>
    [site.file ? `${site.file}${site.line ? `:${site.line}` : ""}` : null, site.module]
      .filter(Boolean)
      .join(" · ");
  const programs = (site) => {
    const names = [
      ...new Set(
        site.processes.map(([process]) => programOf(processes.get(process))).filter(Boolean),
      ),
    ];
    return (
      names.join(", ") +
      (site.processes_all > site.processes.length
        ? ` and ${count(site.processes_all - site.processes.length)} more`
        : site.processes_all > names.length
          ? ` (${counted(site.processes_all, "process")})`
          : "")
    );
  };
  holder.append(
    el(
      "p",
      { class: "lead" },
      "Choosing a call site shows its call stack, and highlights it in the picture above and in " +
        "the flame graph below. The strip shows when it was active and as what: ",
      el("b", {}, "sequential"),
      " blue, ",
      el("b", {}, "looping"),
      " orange, ",
      el("b", {}, "other"),
      run.picture.classes_by
        ? ` grey, by ${run.picture.classes_by} at the time. Class and period are what pcc takes ` +
            "a call site for at the end."
        : " grey.",
    ),
  );
  const shown = table(holder, {
    noun: "call site",
    rows,
    left: run.left_out.sites,
    pick: (row) => pick(row ? row.position : null),
    details: ({ position }) => stackList(run, position),
    small: ({ site }) => site.share < 0.001,
    sorted: { column: 1, down: true },
    columns: [
      {
        head: "call site",
        class: "words",
        text: ({ site }) => `${visible(site.label)} ${place(site)} ${site.signature}`,
        cell: ({ site, position }) => {
          const name = el(
            "span",
            { class: "mono", title: visible(site.label) },
            shortened(brief(site.label), 160),
          );
          const chip =
            position < 6 ? el("span", { class: "chip" }, el("b", {}, LETTERS[position])) : null;
          if (chip) chip.style.color = `var(--${SITE_COLOURS[position]})`;
          return el(
            "span",
            {},
            ...(chip ? [chip, " "] : []),
            name,
            el("small", {}, visible(place(site))),
          );
        },
      },
      {
        head: "share",
        value: ({ site }) => site.share,
        text: ({ site }) => percent(site.share),
        cell: ({ site }) => shareCell(site.share),
      },
      {
        head: "references",
        class: "wide",
        value: ({ site }) => site.references,
        text: ({ site }) => count(site.references),
      },
      {
        head: "blocks",
        value: ({ site }) => site.distinct_blocks,
        text: ({ site }) => count(site.distinct_blocks),
      },
      run.kind === "memory"
        ? {
            head: "stores",
            class: "wide",
            value: ({ row }) => row.stores,
            text: ({ row }) => count(row.stores),
          }
        : {
            head: "bytes",
            class: "wide",
            value: ({ row }) => row.read_bytes + row.written_bytes,
            text: ({ row }) => bytes(row.read_bytes + row.written_bytes),
          },
      {
        head: "class (pcc)",
        class: "short",
        text: ({ site }) => site.class ?? "-",
        absent: run.sites.every((site) => !site.class),
      },
      {
        head: "over time",
        class: "short wide",
        plain: true,
        text: () => "",
        cell: (row) => (row.strip ??= classStrip(parts, row.position)),
      },
      {
        head: "period",
        title: "references from one round of the loop to the next",
        absent: run.sites.every((site) => !site.period),
        value: ({ site }) => site.period ?? -1,
        text: ({ site }) => (site.period ? count(site.period) : "-"),
      },
      { head: "process", class: "short wide", text: ({ site }) => visible(programs(site)) },
    ],
  });
  themed.push(() => rows.forEach((row) => row.strip?.redraw()));
  return (position) =>
    shown.mark(position === null ? null : (rows.find((row) => row.position === position) ?? null));
};

const filesSection = (holder, run, enlarge) => {
  const rows = run.stats.by_object;
  if (rows.length === 0) {
    holder.append(
      el("p", { class: "lead" }, "This trace does not say which files its blocks are of."),
    );
    return;
  }
  const memory = run.kind === "memory";
  holder.append(el("p", { class: "lead" }, "Choosing one enlarges its blocks in the picture."));
  const moved = (row) => row.read_bytes + row.written_bytes + row.mapped_bytes;
  const all = rows.reduce((sum, row) => sum + moved(row), 0);
  table(holder, {
    noun: memory ? "region" : "file",
    rows,
    left: run.left_out.objects,
    pick: (row) => enlarge(row ? row.number : null),
    small: (row) => row.share < 0.001 && moved(row) <= all * 0.001,
    sorted: { column: 1, down: true },
    columns: [
      {
        head: memory ? "region" : "file",
        class: "words",
        text: (row) => visible(row.name),
        cell: (row) => el("span", { class: "mono" }, visible(shortened(row.name, 200))),
      },
      {
        head: "share",
        value: (row) => row.share,
        text: (row) => percent(row.share),
        cell: (row) => shareCell(row.share),
      },
      { head: "references", value: (row) => row.references, text: (row) => count(row.references) },
      {
        head: "blocks",
        class: "wide",
        value: (row) => row.blocks,
        text: (row) => count(row.blocks),
      },
      ...(memory
        ? [
            { head: "loads", value: (row) => row.loads, text: (row) => count(row.loads) },
            { head: "stores", value: (row) => row.stores, text: (row) => count(row.stores) },
          ]
        : [
            { head: "read", value: (row) => row.read_bytes, text: (row) => bytes(row.read_bytes) },
            {
              head: "written",
              class: "wide",
              value: (row) => row.written_bytes,
              text: (row) => bytes(row.written_bytes),
            },
            {
              head: "mapped",
              class: "wide",
              value: (row) => row.mapped_bytes,
              text: (row) => bytes(row.mapped_bytes),
            },
          ]),
    ],
  });
};

const shapeSection = (holder, run) => {
  const { stats, distributions } = run;
  if (stats.references === 0) {
    holder.append(el("p", { class: "lead" }, "Nothing was referenced."));
    return;
  }
  const part = (title, note) => {
    const plot = el("div", { class: "chart" });
    holder.append(el("div", {}, el("h3", {}, title), el("p", { class: "note" }, note), plot));
    return plot;
  };
  const buckets = stats.reuse.buckets.map((hits, exponent) => ({
    word: shortBytes(2 ** exponent * stats.block_bytes),
    value: hits / stats.references,
    hits,
    said:
      `reuse at a distance below ${bytes(2 ** exponent * stats.block_bytes)} ` +
      `(${counted(2 ** exponent, "block")})`,
  }));
  const cold = {
    word: "first use",
    apart: true,
    value: stats.reuse.cold / stats.references,
    hits: stats.reuse.cold,
    said: "first uses, which no cache serves",
  };
  barChart(
    part(
      "Reuse distance",
      "The number of other blocks that are used before a block is used again: the hits that an " +
        "LRU cache of that size adds. The last bar, in grey, is first uses, which no cache serves.",
    ),
    {
      bars: [...buckets, cold],
      values: percent,
      axisLabel: "below",
      label:
        "Histogram of LRU stack distances: " +
        [...buckets, cold].map((bar) => `${bar.said} ${percent(bar.value)}`).join("; "),
      tip: (bar) => `${bar.said}\n${counted(bar.hits, "reference")}, ${percent(bar.value)}`,
    },
  );
  const cumulative = (title, note, distribution, noun, style) => {
    if (distribution.rows.length < 2) return;
    const plot = part(title, note);
    lineChart(plot, {
      label: `Share of references by number of ${noun}s`,
      steps: distribution.rows.length < 40,
      lines: [
        {
          label: `${noun}s`,
          style,
          points: distribution.rows.map((rows, at) => [
            rows,
            distribution.references[at] / stats.references,
          ]),
        },
      ],
      x: {
        label: `${noun}s, the most referenced first`,
        values: shortCount,
        tip: (at) => `the first ${counted(at, noun)}`,
      },
      y: { range: [0, 1.02], values: percent },
    });
  };
  const few = (concentration) =>
    `Half of the references are of ${count(concentration.for_50_percent)}, ` +
    `nine tenths of ${count(concentration.for_90_percent)}, ` +
    `all but a hundredth of ${count(concentration.for_99_percent)}.`;
  const object = run.kind === "memory" ? "region" : "file";
  cumulative(
    `References by ${object}`,
    few(stats.object_concentration),
    distributions.objects,
    object,
    ["c2", "●", []],
  );
  if (run.sites.length > 0)
    cumulative(
      "References by call site",
      few(stats.site_concentration),
      distributions.sites,
      "call site",
      ["c3", "◆", []],
    );
  const classifying = [
    ...new Map(
      run.results
        .filter((result) => Object.keys(result.classes).length > 0)
        .map((result) => [JSON.stringify([result.policy, result.params]), result]),
    ).values(),
  ];
  if (classifying.length === 0) return;
  const shares = el("div", { class: "shares" });
  for (const result of classifying) {
    const all = Object.values(result.classes).reduce((sum, one) => sum + one, 0) || 1;
    const bar = el(
      "div",
      { class: "barline" },
      ["looping", "sequential", "other"].map((which) => {
        const references = result.classes[which];
        const share = references / all;
        const piece = el(
          "div",
          { class: which, title: `${which}: ${counted(references, "reference")}` },
          share > 0.16 ? `${which} ${percent(share)}` : share > 0.05 ? percent(share) : "",
        );
        piece.style.width = `${share * 100}%`;
        return piece;
      }),
    );
    shares.append(el("b", {}, result.policy), bar);
  }
  holder.append(
    el(
      "div",
      {},
      el("h3", {}, "Classes of references"),
      el(
        "p",
        { class: "note" },
        "The classes of references, as each policy sees them at the time: pcc classifies call " +
          "sites, ubm files, dear processes. What is read for the first time is no loop yet.",
      ),
      shares,
      el(
        "p",
        { class: "note" },
        ...classifying.flatMap((result, index) => [
          index > 0 ? "; " : "",
          `${result.policy}: `,
          ["looping", "sequential", "other"]
            .map((which) => `${count(result.classes[which])} ${which}`)
            .join(", "),
        ]),
      ),
    ),
  );
};

const processesSection = (holder, run) => {
  const named = run.processes.some((process) => process.exe);
  table(holder, {
    noun: "process",
    rows: run.processes,
    small: (process) => process.share < 0.001,
    left: run.left_out.processes,
    sorted: { column: 1, down: true },
    limit: 12,
    columns: [
      {
        head: "program",
        class: "words",
        text: (process) => visible(`${process.exe} ${process.command}`),
        cell: (process) =>
          el(
            "span",
            {},
            el(
              "span",
              { class: "mono" },
              visible(named ? programOf(process) : `process ${process.process}`),
            ),
            el("small", {}, visible(shortened(process.command || process.exe, 160))),
          ),
      },
      {
        head: "share",
        value: (process) => process.share,
        text: (process) => percent(process.share),
        cell: (process) => shareCell(process.share),
      },
      {
        head: "references",
        value: (process) => process.references,
        text: (process) => count(process.references),
      },
      {
        head: "over time",
        class: "short wide",
        plain: true,
        text: () => "",
        cell: (process) => {
          const strip = activityStrip(process.over_time);
          themed.push(() => strip.isConnected && strip.redraw());
          return strip;
        },
      },
      {
        head: "pid",
        class: "wide",
        value: (process) => process.pid,
        text: (process) => (process.pid ? String(process.pid) : "-"),
      },
      {
        head: "threads",
        value: (process) => process.threads.length + process.threads_left_out,
        text: (process) => count(process.threads.length + process.threads_left_out),
        cell: (process) =>
          process.threads.length < 2
            ? count(process.threads.length)
            : el(
                "details",
                {},
                el("summary", {}, count(process.threads.length + process.threads_left_out)),
                ...process.threads.map((thread) =>
                  el("small", {}, `${thread.tid || thread.thread}: ${percent(thread.share)}`),
                ),
                ...(process.threads_left_out > 0
                  ? [el("small", {}, `and ${count(process.threads_left_out)} more`)]
                  : []),
              ),
      },
    ],
  });
};

const nodesSection = (section, holder, run) => {
  section.hidden = run.placements.length === 0;
  if (section.hidden) return;
  table(holder, {
    noun: "placement",
    rows: run.placements,
    filter: false,
    limit: 100,
    columns: [
      { head: "placement", class: "short", text: (row) => row.placement },
      { head: "nodes", class: "short", text: (row) => row.nodes },
      {
        head: "local",
        value: (row) => row.local_hit_ratio,
        text: (row) => percent(row.local_hit_ratio),
      },
      { head: "hops", class: "wide", value: (row) => row.hops, text: (row) => fixed(row.hops, 2) },
      {
        head: "access",
        value: (row) => row.access_latency_ns,
        text: (row) => duration(row.access_latency_ns),
      },
      {
        head: "migrations",
        class: "wide",
        value: (row) => row.migrations,
        text: (row) => count(row.migrations),
      },
      {
        head: "replicas",
        class: "wide",
        value: (row) => row.replications,
        text: (row) => count(row.replications),
      },
      {
        head: "modelled time",
        value: (row) => row.modelled_time_ns,
        text: (row) => duration(row.modelled_time_ns),
      },
    ],
  });
  for (const drawing of run.drawings)
    holder.append(el("img", { class: "drawing", alt: drawing.title, src: drawing.image }));
  if (run.drawings_left_out > 0)
    holder.append(
      el(
        "p",
        { class: "note" },
        `${counted(run.drawings_left_out, "drawing")} would not fit on this page; ` +
          "hither place draws them.",
      ),
    );
};

const sourceSection = (holder, run) => {
  const { trace, machine, stats } = run;
  const skipped = Object.entries(trace.skipped).filter(([, number]) => number > 0);
  const facts = [
    ["trace", `${trace.path} (${trace.format})`],
    ["SHA-256", trace.sha256 || "made up, not read from a file"],
    [
      "recorded",
      run.started_unix_ns > 0
        ? new Date(run.started_unix_ns / 1e6).toISOString().replace("T", " ").slice(0, 19) + " UTC"
        : null,
    ],
    [
      "machine",
      machine.host
        ? `${machine.host}, Linux ${machine.kernel}, ${counted(machine.cpus, "CPU")}, ` +
          bytes(machine.memory_bytes)
        : null,
    ],
    ["block", bytes(stats.block_bytes)],
    [
      "loaded with",
      Object.entries(trace.loaded_with)
        .map(
          ([name, value]) => `${name}=${typeof value === "object" ? JSON.stringify(value) : value}`,
        )
        .join(" "),
    ],
    ["not counted", skipped.map(([what, number]) => `${count(number)} ${what}`).join(", ") || null],
    ["lost", run.lost],
    [
      "damaged",
      trace.losses.damaged_records > 0
        ? `${counted(trace.losses.damaged_records, "record")}, left out`
        : null,
    ],
    [
      "not recorded",
      trace.losses.not_recorded
        .map((program) => `${program.path} (${program.reason})`)
        .slice(0, 20)
        .join(", ") || null,
    ],
    ["hither", trace.hither],
  ];
  holder.append(
    el(
      "dl",
      { class: "facts" },
      facts
        .filter(([, value]) => value)
        .flatMap(([name, value]) => [
          el("dt", {}, name),
          el("dd", { class: name === "SHA-256" ? "mono" : undefined }, visible(String(value))),
        ]),
    ),
    el(
      "p",
      { class: "note" },
      "The figures are those of `hither stat --json` and `hither sim --json` on this trace; " +
        "`hither report --json` gives all of this page's data.",
    ),
  );
};
