/** Values that components look at. */

import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  private readonly listeners = new Set<() => void>();

  constructor(private value: T) {}

  get(): T {
    return this.value;
  }

  set(value: T): void {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const listener of [...this.listeners]) listener();
  }

  update(change: (value: T) => T): void {
    this.set(change(this.value));
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

export function useStore<T>(store: Store<T>): T {
  const [, turn] = useState(0);
  const shown = store.get();
  useEffect(() => {
    // It may have changed between the rendering and now.
    if (!Object.is(shown, store.get())) turn((n) => n + 1);
    return store.subscribe(() => turn((n) => n + 1));
  }, [store]);
  return shown;
}
