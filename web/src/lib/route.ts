/** Where the page is: everything that can be shown has an address, in the part behind #. */

import { Store } from "./store";

function partsOf(hash: string): string[] {
  return hash
    .replace(/^#\/?/, "")
    .split("/")
    .filter((part) => part !== "")
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part; // not an address that the page has written
      }
    });
}

/** The parts of the address. */
export const route = new Store<string[]>(partsOf(location.hash));

window.addEventListener("hashchange", () => route.set(partsOf(location.hash)));

export function href(...parts: (string | number)[]): string {
  return `#/${parts.map((part) => encodeURIComponent(String(part))).join("/")}`;
}

export function go(...parts: (string | number)[]): void {
  location.hash = href(...parts);
}
