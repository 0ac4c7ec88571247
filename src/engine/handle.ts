// How a procedure of the contract gets its handler: one of three ways, by what its contract says of itself.
import type {
  AnySchema,
  ContractProcedure,
  ErrorMap,
  InferSchemaInput,
  InferSchemaOutput,
} from '@orpc/contract'
import { Procedure as OrpcProcedure } from '@orpc/server'
import type { Meta } from '#api/base.ts'
import type { Call, TxCall } from '#engine/call.ts'
import { inputCheck, outputCheck, runCall, type HttpContext, type Runner } from '#engine/kernel.ts'
import { assert } from '#lib/assert.ts'

type Contract<I extends AnySchema, O extends AnySchema, E extends ErrorMap> = ContractProcedure<
  I,
  O,
  E,
  Meta
>
/** What `router.ts` puts in the contract's place. */
export type Handled<I extends AnySchema, O extends AnySchema, E extends ErrorMap> = OrpcProcedure<
  HttpContext,
  HttpContext,
  I,
  O,
  E,
  Meta
>

/** For `tx: 'one'`: the kernel commits when the handler returns and undoes all when it throws. */
export function handleTx<I extends AnySchema, O extends AnySchema, E extends ErrorMap>(
  contract: Contract<I, O, E>,
  run: (call: TxCall, input: InferSchemaOutput<I>) => Promise<InferSchemaInput<O>>,
): Handled<I, O, E> {
  return build(contract, {
    kind: 'tx',
    run: (call, input) => run(call, input as InferSchemaOutput<I>),
  })
}

/** For `tx: 'none'`: the handler waits or streams and holds no connection meanwhile. */
export function handle<I extends AnySchema, O extends AnySchema, E extends ErrorMap>(
  contract: Contract<I, O, E>,
  run: (call: Call, input: InferSchemaOutput<I>) => Promise<InferSchemaInput<O>>,
): Handled<I, O, E> {
  return build(contract, {
    kind: 'free',
    run: (call, input) => run(call, input as InferSchemaOutput<I>),
  })
}

/**
 * For answers with a secret (D40), in one transaction. `run` names what it made by an id (`subject`), which is all that
 * is kept under the idempotency key; `replay` answers for it, without the secret.
 */
export function handleOnce<I extends AnySchema, O extends AnySchema, E extends ErrorMap>(
  contract: Contract<I, O, E>,
  way: {
    run: (
      call: TxCall,
      input: InferSchemaOutput<I>,
    ) => Promise<{ subject: string; answer: InferSchemaInput<O> }>
    replay: (call: TxCall, subject: string) => Promise<InferSchemaInput<O>>
  },
): Handled<I, O, E> {
  return build(contract, {
    kind: 'once',
    run: (call, input) => way.run(call, input as InferSchemaOutput<I>),
    replay: way.replay,
  })
}

function build<I extends AnySchema, O extends AnySchema, E extends ErrorMap>(
  contract: Contract<I, O, E>,
  runner: Runner,
): Handled<I, O, E> {
  const definition = contract['~orpc']
  const { meta } = definition
  assert(
    meta.tx === (runner.kind === 'free' ? 'none' : 'one'),
    `tx of ${meta.tx} is not handled so`,
  )
  assert((meta.idempotency === 'once') === (runner.kind === 'once'), 'only `once` is handled once')
  const procedure = {
    meta,
    runner,
    checkInput: inputCheck(definition.inputSchema, meta.rawText),
    checkOutput: outputCheck(definition.outputSchema),
  }
  // The kernel checks both ways itself, in its own order: with the schemas here they would be checked twice.
  const { inputSchema: _in, outputSchema: _out, ...rest } = definition
  return new OrpcProcedure<HttpContext, HttpContext, I, O, E, Meta>({
    ...rest,
    middlewares: [],
    inputValidationIndex: 0,
    outputValidationIndex: 0,
    handler: ({ context, input, path, signal }) =>
      runCall(procedure, context, { input, path, signal }),
  })
}
