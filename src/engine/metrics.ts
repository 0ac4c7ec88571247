// What the engine counts (000-76). Names end in their unit; labels have few values: never an id, a path or a name.
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'

export type Metrics = {
  registry: Registry
  /** Answers by route family and status code. */
  http: Counter<'route' | 'code'>
  /** Calls of procedures: seconds by procedure and code (`OK` or an error's). */
  calls: Histogram<'procedure' | 'code'>
  /** 1 while the last pass of the loop failed, else 0. */
  loopFailing: Gauge<'loop'>
  /** How long the last pass of the loop took. */
  loopSeconds: Gauge<'loop'>
  /** Live sessions of nodes on this engine. */
  sessions: Gauge
  /** Decisions of placement: `placed`, `waited`, `no-node`. */
  placements: Counter<'outcome'>
  /** Invocations that a node has taken on and that have not ended. */
  invocationsRunning: Gauge
  /** Ended invocations: `ok` or the reason of the failure. */
  invocations: Counter<'outcome'>
  invocationSeconds: Histogram
  /** Refused for their rate, by limit. */
  limited: Counter<'limit'>
}

const CALL_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]

/** `ofProcess` adds CPU, memory, garbage collection and the delay of the event loop: once a process. */
export function createMetrics({ ofProcess = false } = {}): Metrics {
  const registry = new Registry()
  if (ofProcess) collectDefaultMetrics({ register: registry, prefix: 'clutch_' })
  const registers = [registry]
  const counter = <L extends string>(name: string, help: string, labelNames: L[]): Counter<L> =>
    new Counter({ name: `clutch_${name}`, help, labelNames, registers })
  const histogram = <L extends string>(name: string, help: string, labelNames: L[]): Histogram<L> =>
    new Histogram({ name: `clutch_${name}`, help, labelNames, registers, buckets: CALL_SECONDS })
  const gauge = <L extends string>(name: string, help: string, labelNames: L[]): Gauge<L> =>
    new Gauge({ name: `clutch_${name}`, help, labelNames, registers })
  return {
    registry,
    http: counter('http_requests_total', 'Answered HTTP requests', ['route', 'code']),
    calls: histogram('call_seconds', 'Calls of procedures', ['procedure', 'code']),
    loopFailing: gauge('loop_failing', '1 while the last pass of the loop failed', ['loop']),
    loopSeconds: gauge('loop_pass_seconds', 'Wall time of the last pass of the loop', ['loop']),
    sessions: gauge('sessions', 'Live sessions of nodes on this engine', []),
    placements: counter('placements_total', 'Decisions of placement', ['outcome']),
    invocationsRunning: gauge('invocations_running', 'Invocations that a node has taken on', []),
    invocations: counter('invocations_total', 'Ended invocations of functions', ['outcome']),
    invocationSeconds: histogram('invocation_seconds', 'Wall time of invocations', []),
    limited: counter('rate_limited_total', 'Calls refused for their rate', ['limit']),
  }
}
