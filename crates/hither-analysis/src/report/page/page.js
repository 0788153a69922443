// Builds the sections and keeps them consistent: the run that is shown, the highlighted call site,
// the theme.

const report = JSON.parse(document.getElementById("data").textContent);

const LEAD =
  "Each block against virtual time (references so far): a straight line is a scan, repeated " +
  "lines are a loop, a cloud is neither. Files lie one above the other, in the order of first " +
  "use; the fuller the colour, the more references.";

const SECTIONS = [
  "verdict",
  "ratios",
  "picture",
  "sites",
  "stacks",
  "files",
  "shape",
  "processes",
  "nodes",
  "source",
];

const showRun = async (index) => {
  const run = report.runs[index];
  const which = report.runs.length > 1 ? ` of ${"AB"[index]}` : "";
  for (const name of SECTIONS) {
    const section = document.getElementById(name);
    section.querySelector("h2").dataset.of = which;
    body(name).replaceChildren();
  }
  const memory = run.kind === "memory";
  document.getElementById("ratios").hidden = memory;
  document.getElementById("stacks").hidden = run.sites.length === 0;
  document.querySelector("#files h2").textContent = memory ? "Regions" : "Files";
  const lead = run.times.length > 1 ? `${LEAD} The axis above shows the time.` : LEAD;
  document.querySelector("#picture .lead").textContent = memory
    ? lead.replace("Files", "Regions")
    : lead;
  // For memory, placements matter most and come first.
  document.getElementById(memory ? "verdict" : "processes").after(document.getElementById("nodes"));
  document.title = `${shortened(visible(commandOf(run)), 60)} · hither report`;
  verdictSection(body("verdict"), run);
  if (!memory) ratiosSection(body("ratios"), run);
  nodesSection(document.getElementById("nodes"), body("nodes"), run);
  shapeSection(body("shape"), run);
  processesSection(body("processes"), run);
  sourceSection(body("source"), run);
  forgetCharts();
  navigation();

  const cells = await decoded(run.picture);
  const kept = { picture: null, mark: null, flame: null };
  const choose = (position) => {
    kept.picture?.select(position);
    kept.mark?.(position);
    kept.flame?.select(position);
  };
  if (run.stats.references > 0)
    kept.picture = spaceTime(body("picture"), run, cells, { onSite: choose });
  else body("picture").append(el("p", { class: "lead" }, "Nothing was referenced."));
  kept.mark = sitesSection(body("sites"), run, cells, (position) => {
    kept.picture?.select(position);
    kept.flame?.select(position);
  });
  if (!document.getElementById("stacks").hidden)
    kept.flame = flameGraph(body("stacks"), run, { onSite: choose });
  filesSection(body("files"), run, (object) => kept.picture?.enlarge(object));
};

const navigation = () => {
  const names = {
    comparison: "What changed",
    verdict: "Verdict",
    ratios: "Hit ratios",
    picture: "Over time",
    sites: "Call sites",
    stacks: "Call stacks",
    files: document.querySelector("#files h2").textContent,
    shape: "Reuse",
    processes: "Processes",
    nodes: "Nodes",
    source: "Source",
  };
  const links = Object.entries(names).filter(([name]) => !document.getElementById(name).hidden);
  document
    .getElementById("nav")
    .replaceChildren(...links.map(([name, text]) => el("a", { href: `#${name}` }, text)));
};

const switchRuns = () => {
  const holder = document.getElementById("runs");
  holder.hidden = report.runs.length < 2;
  const buttons = report.runs.map((run, index) => {
    const button = el(
      "button",
      { type: "button", "aria-pressed": String(index === 0), title: visible(commandOf(run)) },
      `Run ${"AB"[index]}`,
    );
    button.addEventListener("click", async () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      await showRun(index);
    });
    return button;
  });
  holder.append(...buttons);
};

document.getElementById("theme").addEventListener("click", () => {
  theme = { auto: dark() ? "light" : "dark", light: "dark", dark: "light" }[theme];
  applyTheme();
});
SYSTEM.addEventListener("change", applyTheme);
themed.push(redrawCharts);
applyTheme();

// The page is printed in the light theme.
let before = null;
addEventListener("beforeprint", () => {
  before = theme;
  theme = "light";
  applyTheme();
});
addEventListener("afterprint", () => {
  theme = before ?? theme;
  applyTheme();
});

switchRuns();
comparisonSection(document.getElementById("comparison"), body("comparison"), report);
showRun(0).then(
  () => (root.dataset.ready = "true"),
  (error) =>
    document
      .querySelector("main")
      .prepend(el("p", { class: "notice" }, `This browser cannot draw the page: ${error}`)),
);
