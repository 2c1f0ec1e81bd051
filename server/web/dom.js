// Nodes without HTML text: whatever a model or a tool wrote becomes a text node, so nothing of it can run.

export const $ = id => document.getElementById(id);

// make("button.link", {onclick}, "text", node): classes behind dots, properties, then children; null is no child.
export function make(what, props, ...children) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  node.classList.add(...classes);
  Object.assign(node, props);
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

export function button(what, text, onclick, label) {
  const node = make("button" + what, { type: "button", onclick }, text);
  if (label) {
    node.title = label;
    node.ariaLabel = label;
  }
  return node;
}

// Pages that are not from loopback or HTTPS have no clipboard API; the selection still has one.
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return;
  } catch {
    // not there, or not allowed
  }
  const area = make("textarea", { value: text });
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("no clipboard");
}

// text() is asked for when the button is pressed.
export function copyButton(what, text) {
  const node = button(what, "Copy", async () => {
    try {
      await toClipboard(text());
      node.textContent = "Copied";
    } catch {
      node.textContent = "Not copied";
    }
    setTimeout(() => { node.textContent = "Copy"; }, 1500);
  });
  return node;
}
