// What a person who sees little, or uses no mouse, would stumble over: an empty list if nothing.
() => {
  const found = [];
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const pixels = (css) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) { const p = pixels(getComputedStyle(at).backgroundColor); if (p[3] === 255) return p; }
    return [255, 255, 255, 255];
  };
  const seen = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest(".hidden, .skip, script, style, title")) continue;
    const style = getComputedStyle(element);
    const colour = element.ownerSVGElement ? style.fill : style.color;
    const box = element.ownerSVGElement && element.parentElement.querySelector(":scope > rect");
    const behind = box ? pixels(getComputedStyle(box).fill) : ground(element.ownerSVGElement?.parentElement ?? element);
    const key = `${colour} on ${behind}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const ratio = contrast(pixels(colour), behind);
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${key}: ${element.textContent.trim().slice(0, 40)}`);
  }
  const named = (element) => element.getAttribute("aria-label") || element.getAttribute("aria-labelledby") || element.textContent.trim()
    || element.labels?.length;
  for (const element of document.querySelectorAll("a[href], button, input, select, summary, [role=region], [role=search], section")) {
    if (!named(element)) found.push(`no name: ${element.outerHTML.slice(0, 80)}`);
  }
  for (const element of document.querySelectorAll("svg")) {
    const spoken = element.getAttribute("role") === "img" && element.getAttribute("aria-label");
    if (!spoken && element.getAttribute("aria-hidden") !== "true") found.push(`silent picture: ${element.outerHTML.slice(0, 80)}`);
  }
  for (const element of document.querySelectorAll(".scroll, pre")) {
    if (element.tabIndex !== 0) found.push(`the keyboard cannot scroll: ${element.outerHTML.slice(0, 80)}`);
  }
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) found.push(`heading ${next} after ${level}: ${heading.textContent.slice(0, 40)}`);
    level = next;
  }
  for (const table of document.querySelectorAll("table")) {
    if ([...table.querySelectorAll("th")].some((cell) => !cell.scope)) found.push("a heading of a table without its scope");
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  if (new Set(ids).size !== ids.length) found.push("an id is there twice");
  if (!document.documentElement.lang) found.push("the page does not say its language");
  if (document.querySelectorAll("main").length !== 1) found.push("there must be one main part");
  return found;
}
