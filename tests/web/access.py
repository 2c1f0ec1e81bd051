"""What somebody needs who does not see well, or uses no mouse: expressions for the page, each a list of what is wrong."""

# Everything that Tab must reach, by name; equal names are numbered, as nodes may be made anew at any time.
STOPS = """[...document.querySelectorAll("button, input, select, textarea, a[href], summary, [tabindex='0']")]
  .filter(n => n.checkVisibility({ visibilityProperty: true }) && !n.disabled && n.tabIndex >= 0)
  .map(n => [n, n.id || n.className + " " + (n.ariaLabel || n.innerText.slice(0, 20))])
  .map(([n, name], i, all) => [n, name + " " + all.slice(0, i).filter(other => other[1] === name).length])"""
TAB_STOPS = STOPS + ".map(stop => stop[1])"
# Where the focus is, and whether that can be seen.
FOCUS = """(now => {
  const style = getComputedStyle(now);
  return { body: now === document.body, stop: %s.find(stop => stop[0] === now)?.[1] ?? now.outerHTML.slice(0, 80),
           seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 };
})(document.activeElement)""" % STOPS

# Controls without a name for a screen reader, and marks that a reader of the screen alone would see.
NAMES_MISSING = """[...document.querySelectorAll("button, input, select, textarea, progress")]
  .filter(n => !(n.ariaLabel || n.labels?.[0]?.innerText.trim() || n.labels?.[0]?.textContent.trim() || (n.localName === "button" && /\\w/.test(n.innerText))))
  .map(n => n.outerHTML.slice(0, 120))"""

# Text whose colour is too near to what lies behind it (WCAG 2.2, 1.4.3: 4.5 to 1), in what is shown now.
CONTRAST = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = c => {
    const [r, g, b] = c.slice(0, 3).map(v => v / 255).map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = n => {
    for (; n; n = n.parentElement) {
      const c = rgba(getComputedStyle(n).backgroundColor);
      if (c[3] === 255) return c;
    }
    return [255, 255, 255, 255];
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const wrong = [];
  for (const n of document.querySelectorAll("body *")) {
    if (!n.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const own = [...n.childNodes].some(t => t.nodeType === 3 && t.data.trim()), field = /^(input|textarea|select)$/.test(n.localName);
    if (!own && !field) continue;
    const looks = [getComputedStyle(n).color];
    if (n.placeholder) looks.push(getComputedStyle(n, "::placeholder").color);
    for (const colour of looks) {
      const r = ratio(rgba(colour), behind(n));
      if (r < 4.5) wrong.push(n.localName + "." + n.className + " " + r.toFixed(2) + ": " + (n.innerText || n.id).slice(0, 40));
    }
  }
  return wrong;
})()"""
