// The part of the WebAssembly JavaScript API that this room uses: TypeScript has it in its DOM library only.
declare namespace WebAssembly {
  type Imports = Record<string, Record<string, unknown>>
  class Module {
    constructor(bytes: Uint8Array)
    static imports(module: Module): { module: string; name: string; kind: string }[]
    static exports(module: Module): { name: string; kind: string }[]
  }
  class Instance {
    constructor(module: Module, imports?: Imports)
    readonly exports: Record<string, unknown>
  }
  class Memory {
    constructor(limits: { initial: number; maximum?: number })
    readonly buffer: ArrayBuffer
    grow(pages: number): number
  }
  class Global {
    constructor(type: { value: string; mutable?: boolean }, value?: number | bigint)
    value: number | bigint
  }
  class Table {
    constructor(type: { element: string; initial: number })
    set(index: number, value: unknown): void
  }
  class RuntimeError extends Error {}
  function validate(bytes: Uint8Array): boolean
}
