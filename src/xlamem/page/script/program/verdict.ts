/** What must fit, whether it does, what decides it, and what to do first. */

import { h, name, plain, prose } from "../parts/dom.js";
import { exactSize, percent, size } from "../parts/format.js";
import { sentence, type PlainView } from "../parts/frame.js";
import type { Device, Verdict } from "../data/model.js";

export const verdictView: PlainView = (host, { verdict, problems }) => {
  host.append(
    ...problems.map((text) => sentence(plain(text, 500), true)),
    h("div", { class: "verdict" }, amount(verdict), words(verdict)),
  );
  if (verdict.device && verdict.must_fit !== null) host.append(deviceBar(verdict.must_fit, verdict.device, verdict.fits));
};

function amount({ must_fit, terms }: Verdict): HTMLElement {
  const [value, unit] = size(must_fit).split(" ");
  const title = must_fit === null ? null : exactSize(must_fit);
  return h(
    "div",
    { class: "amount" },
    h("div", { class: "figure", title }, value ?? "?", unit ? h("span", { class: "unit" }, unit) : null),
    h("div", { class: "caption" }, "must fit"),
    terms.length > 1
      ? h("ul", { class: "terms" }, ...terms.map((t) => h("li", {}, name(t.memory_space), h("span", {}, size(t.bytes)))))
      : null,
  );
}

function words({ headline, decided_by, first_step, device, reason }: Verdict): HTMLElement {
  return h(
    "div",
    { class: "words" },
    h("p", { class: "headline" }, ...prose(headline)),
    ...decided_by.map((text) => h("p", {}, ...prose(text))),
    reason && device && !headline.includes(reason) ? h("p", { class: "muted" }, ...prose(reason)) : null,
    first_step ? h("p", { class: "first-step" }, ...prose(first_step)) : null,
  );
}

/** Capacity as a bar: what must fit, what is to spare, and what is not available to the program. */
function deviceBar(mustFit: number, device: Device, fits: boolean | null): HTMLElement {
  const { available, capacity } = device;
  const room = Math.max(available, 0); // other data may take more than there is
  const whole = Math.max(capacity, mustFit, 1);
  const part = (kind: string, bytes: number, label: string) =>
    bytes > 0 ? sized(h("div", { class: kind, title: `${label}: ${exactSize(bytes)}` }), bytes / whole) : null;
  const spare = available - mustFit;
  const state = fits === true ? "fits" : fits === false ? "does not fit" : "not known whether it fits";
  const rest = spare >= 0 ? `${size(spare)} to spare` : `${size(-spare)} too much`;
  const bar = h(
    "div",
    { class: "device-bar", "aria-hidden": "true" },
    part("needed", Math.min(mustFit, room), "Must fit"),
    part("spare", room - mustFit, "To spare"),
    part("excess", mustFit - room, "Too much"),
    part("withheld", capacity - Math.max(room, mustFit), "Not available to the program"),
  );
  const mark = h("div", { class: "available-mark", "aria-hidden": "true" });
  mark.style.left = `${(100 * room) / whole}%`;
  return h(
    "div",
    { class: "device" },
    h("div", { class: "device-frame" }, bar, mark),
    h(
      "p",
      { class: "device-words" },
      h("span", { class: `state ${fits === false ? "bad" : fits === true ? "good" : ""}` }, state),
      h("span", {}, ...(device.name === "capacity" ? [] : [name(device.name, 40), ": "]), offered(device)),
      h("span", {}, room ? `${percent(mustFit, room)} used, ${rest}` : rest),
      device.note ? h("span", { class: "muted" }, plain(device.note, 300)) : null,
    ),
  );
}

function offered({ available, capacity }: Device): string {
  return available === capacity ? `${size(available)} available` : `${size(available)} available of ${size(capacity)}`;
}

function sized(element: HTMLElement, share: number): HTMLElement {
  element.style.width = `${100 * share}%`;
  return element;
}
