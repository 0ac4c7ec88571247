// The jail that needs no preparation: resource limits, no privileges, death with the parent, an empty environment.
import type { Clock } from '#lib/clock.ts'
import { Jail } from '#wasm/jail/jail.ts'
import { ALL_MISSING, LAYERS, LAYERS_OF } from '#wasm/jail/layers.ts'
import { Places } from '#wasm/jail/places.ts'

const lacking = new Set(ALL_MISSING.flatMap((name) => LAYERS_OF[name]))

export const bareJail = (clock: Clock): Jail =>
  new Jail({
    clock,
    layers: new Set(LAYERS.filter((layer) => !lacking.has(layer))),
    notes: ALL_MISSING.map((name) => ({ name, why: 'nobody opened the whole jail' })),
    privileged: process.getuid?.() === 0,
    view: undefined,
    filter: undefined,
    places: new Places(undefined, []),
    close: () => {},
  })
