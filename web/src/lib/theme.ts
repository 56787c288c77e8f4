/** Light or dark: as the system says, or as the reader chose. */

import { Store } from "./store";

export type Choice = "auto" | "light" | "dark";
const KEY = "penstock.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function stored(): Choice {
  const known = localStorage.getItem(KEY);
  return known === "light" || known === "dark" ? known : "auto";
}

export const choice = new Store<Choice>(stored());
/** What is shown. */
export const shown = new Store<"light" | "dark">("light");

function apply(): void {
  const wanted = choice.get();
  const look = wanted === "auto" ? (system.matches ? "dark" : "light") : wanted;
  document.documentElement.dataset["theme"] = look;
  shown.set(look);
}

system.addEventListener("change", apply);
choice.subscribe(() => {
  localStorage.setItem(KEY, choice.get());
  apply();
});
apply();

/** A colour of the style sheet, for what is painted on a canvas. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
