// What the scripts of messages and SQL share. Nothing here takes text for HTML.

/** An element with attributes and children; a text child stays text. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A number with thin groups; of a text, so that 64 bits keep their digits. */
export function count(number) {
  return String(number).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** Why a stream did not open: browsers do not tell it to its script. */
export async function why(address) {
  const asking = new AbortController();
  try {
    const answer = await fetch(address, { redirect: "manual", signal: asking.signal });
    if (answer.type === "opaqueredirect") {
      return "the session has ended: load the page again to log in";
    }
    if (!answer.ok) {
      const told = await answer.json();
      return told.problem ?? `the gateway answers ${answer.status}`;
    }
  } catch {
    return "the gateway does not answer: load the page again";
  } finally {
    asking.abort();
  }
  return "the stream broke off: load the page again";
}
