/** '840 ms', '1.2 s', '3 min 5 s', '2 h 4 min', '3 d 1 h'. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`
  const units: [string, number][] = [
    ['d', 86_400_000],
    ['h', 3_600_000],
    ['min', 60_000],
    ['s', 1000],
  ]
  const at = units.findIndex(([, size]) => ms >= size)
  const [big, small] = [units[at], units[at + 1]]
  if (!big || !small) return `${Math.round(ms / 1000)} s`
  const whole = Math.floor(ms / big[1])
  const rest = Math.floor((ms - whole * big[1]) / small[1])
  return rest === 0 ? `${whole} ${big[0]}` : `${whole} ${big[0]} ${rest} ${small[0]}`
}
