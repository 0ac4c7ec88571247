// Text that the store cannot hold: NUL, and halves of characters (lone surrogates). JSON can say both; Postgres refuses
// the one and the driver would change the other.

type TextFault = { path: string[]; message: string }

/** Whether the store holds it and gives it back as it is. */
export const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes('\u0000')

/** Every such text in a checked input; `raw` names top-level fields that never reach the store. */
export function textFaults(input: unknown, raw: readonly string[] = []): TextFault[] {
  const faults: TextFault[] = []
  const walk = (value: unknown, path: string[]): void => {
    if (typeof value === 'string' && !isStorable(value))
      faults.push({ path, message: `${path.join('.')} must not contain NUL or half a character` })
    if (typeof value !== 'object' || value === null) return
    for (const [key, part] of Object.entries(value)) {
      if (path.length === 0 && raw.includes(key)) continue
      if (!isStorable(key)) faults.push({ path, message: 'a name holds NUL or half a character' })
      walk(part, [...path, key])
    }
  }
  walk(input, [])
  return faults
}
