// Links to sources lead out of the book. They are relative to docs/, and the book lies in
// target/book, one folder deeper. mdBook has also made .html of the .md in them.
const book = new URL(path_to_root || "./", location.href);
for (const [tag, name] of [["a", "href"], ["img", "src"]]) {
  for (const element of document.querySelectorAll(`main ${tag}[${name}^="../"]`)) {
    const target = element.getAttribute(name);
    if (!new URL(target, location.href).href.startsWith(book.href)) {
      element.setAttribute(name, `../${target.replace(/\.html(?=#|$)/, ".md")}`);
    }
  }
}
