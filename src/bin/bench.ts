// script/bench: runs benches by name and prints a table for people or one JSON line a bench for machines.
import type { Row } from '#sim/bench/row.ts'

/** `bars`: what a figure must reach; the command fails when it does not. */
type Bench = { run: () => Promise<Row[]>; bars: Record<string, { least?: number; most?: number }> }

const benches: Record<string, () => Promise<Bench>> = {
  sessions: async () => {
    const { benchTransport } = await import('#sim/bench/transport.ts')
    const { benchSessions } = await import('#sim/bench/sessions.ts')
    return {
      run: async () => [...(await benchTransport()), ...(await benchSessions())],
      bars: {
        requests_per_s_quic: { least: 20_000 },
        stream_vs_library: { least: 0.75 },
        session_kb: { most: 64 },
      },
    }
  },
  functions: async () => {
    const { benchFunctions } = await import('#sim/bench/functions.ts')
    return {
      run: benchFunctions,
      bars: {
        warm_invoke_p50_ms: { most: 5 },
        warm_invoke_vs_node_local: { most: 3 },
        cold_invoke_p50_ms: { most: 80 },
        first_invoke_p50_ms: { most: 1_500 },
        invokes_per_s: { least: 500 },
        cpu_us_per_invoke: { most: 3_000 },
      },
    }
  },
  metering: async () => {
    const { benchMetering } = await import('#sim/bench/metering.ts')
    return {
      run: benchMetering,
      bars: { meter_vs_v8_median: { most: 1.5 }, meter_12mb_ms: { most: 1_500 } },
    }
  },
}

function table(name: string, rows: readonly Row[]): string {
  const width = Math.max(...rows.map((row) => row.name.length))
  const lines = rows.map((row) => {
    const peer = row.peer === undefined ? '' : `   ${row.ratio ?? '?'} × ${row.peer}`
    return `  ${row.name.padEnd(width)}  ${String(row.value).padStart(9)} ${row.unit}${peer}`
  })
  return [name, ...lines].join('\n')
}

const args = process.argv.slice(2)
const json = args.includes('--json')
const wanted = args.filter((arg) => arg !== '--json')
const unknown = wanted.find((name) => !(name in benches))
if (unknown !== undefined) {
  process.stderr.write(`no bench '${unknown}': there are ${Object.keys(benches).join(', ')}\n`)
  process.exit(1)
}
let missed = false
for (const [name, load] of Object.entries(benches)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue
  const { run, bars } = await load()
  const rows = await run()
  process.stdout.write(`${json ? JSON.stringify({ bench: name, rows }) : table(name, rows)}\n`)
  for (const [figure, { least, most }] of Object.entries(bars)) {
    const row = rows.find((r) => r.name === figure)
    const held =
      row !== undefined && row.value >= (least ?? -Infinity) && row.value <= (most ?? Infinity)
    if (held) continue
    missed = true
    process.stderr.write(
      `${name}: ${figure} is ${row?.value ?? 'missing'}, the bar is ${least ?? most}\n`,
    )
  }
}
process.exit(missed ? 1 : 0)
