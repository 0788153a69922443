// Colours by theme. Call sites have a letter and the colours of Okabe and Ito, which most people
// with colour blindness can tell apart. Policies also have a mark and a dash.

const root = document.documentElement;
const SYSTEM = window.matchMedia("(prefers-color-scheme: dark)");

// "auto", "light" or "dark". It is not stored: not every browser gives a local file storage.
let theme = "auto";
const themed = [];

const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

const rgb = (name) => {
  const text = colour(name);
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
};

const dark = () => theme === "dark" || (theme === "auto" && SYSTEM.matches);

const applyTheme = () => {
  root.dataset.theme = dark() ? "dark" : "light";
  const button = document.getElementById("theme");
  button.textContent = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" }[theme];
  button.setAttribute("aria-label", `Theme: ${theme}`);
  for (const draw of themed) draw();
};

const SITE_COLOURS = ["c0", "c1", "c2", "c3", "c4", "c5"];
const LETTERS = "ABCDEF";
const CLASSES = ["none", "sequential", "looping", "other"];
const CLASS_COLOURS = ["rest", "sequential", "looping", "other"];
const CLASS_LETTERS = "-SLO";

const POLICY_STYLES = {
  lru: ["c1", "●", []],
  arc: ["c2", "▲", [6, 3]],
  dear: ["c5", "■", [2, 3]],
  ubm: ["c3", "◆", [8, 3, 2, 3]],
  pcc: ["c0", "★", []],
  opt: ["ink", "○", [4, 4]],
};
const MORE_STYLES = [
  ["c4", "▼", []],
  ["rest", "✚", [6, 3]],
  ["c2", "◇", [2, 3]],
  ["c3", "□", []],
  ["c5", "△", [8, 3]],
  ["c1", "▽", [3, 2]],
];

// The style of each policy of a list: its own, or one of the unused styles.
const policyStyles = (policies) => {
  let next = 0;
  return policies.map((name) => {
    const known = !name.includes("{") && POLICY_STYLES[name];
    return known || MORE_STYLES[next++ % MORE_STYLES.length];
  });
};
