/** Listeners of the application. */

/** Call each. What one throws is reported as its own error is: nothing here stops for it. */
export function callBack<Value>(listeners: Iterable<(value: Value) => void>, value: Value): void {
  for (const listener of [...listeners]) {
    try {
      listener(value);
    } catch (error) {
      queueMicrotask(() => {
        throw error;
      });
    }
  }
}
