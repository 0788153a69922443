// Elements and numbers. Numbers are formatted as by the command
// (crates/hither-analysis/src/format.rs), so that they can be searched for. Names from a trace only
// become text nodes.

const el = (tag, properties = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
};

const count = (number) =>
  Math.round(number)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",");

const plural = (noun) =>
  noun.endsWith("s") ? `${noun}es` : noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;

const counted = (number, noun) => `${count(number)} ${number === 1 ? noun : plural(noun)}`;

// Rust rounds halves to even, toFixed rounds them up.
const fixed = (number, digits) => {
  const scaled = number * 10 ** digits;
  const between =
    Number.isInteger(number * 2 ** (digits + 1)) && scaled - Math.floor(scaled) === 0.5;
  return (
    between && Math.floor(scaled) % 2 === 0 ? Math.floor(scaled) / 10 ** digits : number
  ).toFixed(digits);
};

const percent = (share) => (share > 0 && share < 0.0005 ? "<0.1 %" : `${fixed(share * 100, 1)} %`);

const bytes = (number) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${number} B` : `${fixed(number, 2)} ${units[unit]}`;
};

const shortPercent = (share) => `${+(share * 100).toFixed(1)} %`;

// Sizes for axes: 64 MiB instead of 64.00 MiB.
const shortBytes = (number) =>
  bytes(number)
    .replace(/\.0+ /, " ")
    .replace(/(\.\d)0 /, "$1 ");

const duration = (ns) => {
  const [scale, unit] = [
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "µs"],
  ].find(([least]) => ns >= least * 0.9995) ?? [1, "ns"];
  const value = ns / scale;
  if (value >= 999.5) return `${count(value)} ${unit}`;
  return `${fixed(value, value === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2)} ${unit}`;
};

// Short forms of large counts for axes: 2.5 M.
const shortCount = (number) => {
  for (const [least, unit] of [
    [1e9, " G"],
    [1e6, " M"],
    [1e3, " k"],
  ]) {
    if (Math.abs(number) >= least) return `${+(number / least).toPrecision(3)}${unit}`;
  }
  return `${+number.toPrecision(3)}`;
};

const shortened = (text, width) => {
  const letters = [...text];
  if (letters.length <= width) return text;
  const head = Math.floor((width - 1) / 2);
  const tail = letters.length - (width - 1 - head);
  return `${letters.slice(0, head).join("")}…${letters.slice(tail).join("")}`;
};

// Each of these texts, shortened to a width, or to more where they would look alike; `whole` are
// the longer texts that tell those apart that are the same.
const distinctly = (texts, whole, width) => {
  const alone = (all, at) => all.indexOf(all[at]) === all.lastIndexOf(all[at]);
  const cut = (at, wide) => shortened(visible(alone(texts, at) ? texts[at] : whole[at]), wide);
  const wide = texts.map(() => width);
  for (;;) {
    const shown = texts.map((_, at) => cut(at, wide[at]));
    const longer = shown.map((text, at) => !alone(shown, at) && cut(at, Infinity) !== text);
    if (!longer.includes(true)) return shown;
    longer.forEach((yes, at) => yes && (wide[at] *= 2));
  }
};

// Makes characters visible that change how their neighbours are shown: line ends, controls,
// direction marks.
const visible = (text) =>
  text.replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (letter) => {
      const code = letter.charCodeAt(0);
      return code === 10 ? "↵" : code === 9 ? " " : `\\u${code.toString(16).padStart(4, "0")}`;
    },
  );

// A call site with its paths shortened to file names. The title and the filter have the full text.
const brief = (label) => visible(label).replace(/(^|[\s(])[^\s():]*\/([^\s():/]+)/g, "$1$2");

const body = (section) => document.querySelector(`#${section} .body`);
