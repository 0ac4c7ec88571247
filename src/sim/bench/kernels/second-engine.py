# A second engine for script/bench metering, where Python has the module wasmtime. Reads JSON from stdin:
#   {"time": {"wasm", "amounts": {name: amount}, "turns"}, "runs": [{"wasm", "calls": [[name, [args]]]}]}
# and writes {"plain": {name: ms}, "fuel": {name: ms}, "runs": [{"results": [[...] | null], "memory", "fuelUsed"}]}.
# Modules are base64, those in runs metered. A result is a float's bits in hex ('nan' for any NaN), or an integer in
# decimals; null is a trap.
import base64
import json
import struct
import sys
import time

from wasmtime import Config, Engine, Global, GlobalType, Instance, Module, Store, Trap, Val, ValType, WasmtimeError

FUEL = 500_000
LIMITS = {'fuel': FUEL, 'depth': 262_144, 'memory': 2**32 - 65_536, 'refused': 0}


def engine(fuel):
    config = Config()
    config.wasm_exceptions = True
    config.wasm_tail_call = True
    config.wasm_function_references = True
    config.consume_fuel = fuel
    return Engine(config)


def bits(value):
    if isinstance(value, float):
        return 'nan' if value != value else struct.pack('<d', value).hex()
    return str(value)


def run(made, one):
    store = Store(made)
    module = Module(made, base64.b64decode(one['wasm']))
    state = {}
    for name, value in LIMITS.items():
        i32 = name == 'refused'
        kind = GlobalType(ValType.i32() if i32 else ValType.i64(), True)
        state[name] = Global(store, kind, Val.i32(value) if i32 else Val.i64(value))
    instance = Instance(store, module, [state[i.name] for i in module.imports])
    exports = instance.exports(store)
    results = []
    for name, args in one['calls']:
        floats = [str(of) in ('f32', 'f64') for of in exports[name].type(store).params]
        try:
            answer = exports[name](store, *(float(x) if f else x for x, f in zip(args, floats)))
            answer = [] if answer is None else answer if isinstance(answer, list) else [answer]
            results.append([bits(x) for x in answer])
        except (Trap, WasmtimeError):
            results.append(None)
    memory = bytes(exports['m'].read(store, 0, 256)).hex()
    return {'results': results, 'memory': memory, 'fuelUsed': FUEL - state['fuel'].value(store)}


def timed(made, task, fuel):
    store = Store(made)
    if fuel:
        store.set_fuel(2**62)
    exports = Instance(store, Module(made, base64.b64decode(task['wasm'])), []).exports(store)
    best = {}
    for _ in range(task['turns']):
        for name, amount in task['amounts'].items():
            began = time.perf_counter()
            exports[name](store, amount)
            best.setdefault(name, []).append((time.perf_counter() - began) * 1000)
    return {name: sorted(times)[len(times) // 2] for name, times in best.items()}


asked = json.load(sys.stdin)
plain = engine(False)
json.dump(
    {
        'plain': timed(plain, asked['time'], False),
        'fuel': timed(engine(True), asked['time'], True),
        'runs': [run(plain, one) for one in asked['runs']],
    },
    sys.stdout,
)
