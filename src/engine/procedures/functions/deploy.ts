// compute.functions.deploy: checked and prepared before anything is stored, then one transaction (FN-1, FN-2).
import { deploy as contract } from '#api/functions.ts'
import { COMPONENT_INLINE_MAX } from '#core/function/limits.ts'
import { formatBytes, fromBase64 } from '#lib/bytes.ts'
import { AppError } from '#lib/error.ts'
import { newId } from '#lib/id.ts'
import { transaction } from '#store/connect.ts'
import { addVersion } from '#store/functions/functions.ts'
import { deployableSize, useUpload } from '#store/functions/uploads.ts'
import { checkMagic } from '#wasm/check.ts'
import { toFunctionRecord } from '#engine/functions/records.ts'
import type { Stored } from '#engine/functions/artifacts.ts'
import type { Call } from '#engine/call.ts'
import { handle } from '#engine/handle.ts'

export const deploy = handle(contract, async (call, input) => {
  const { engine, orgId } = call
  const component = await componentOf(call, input)
  const prepared = await engine.invoker.prepare(component, { memMb: input.memMb, orgId })
  const now = new Date(engine.clock.now())
  const ids = {
    functionId: newId('fn', now.getTime(), engine.random),
    versionId: newId('fnv', now.getTime(), engine.random),
  }
  const row = await transaction(engine.db, async (tx) => {
    await prepared.save(tx, now)
    await useUpload(tx, { orgId, sha256: prepared.componentSha256 })
    const made = await addVersion(tx, {
      orgId,
      name: input.name,
      ...ids,
      componentSha256: prepared.componentSha256,
      sizeBytes: prepared.sizeBytes,
      cpuMillis: input.cpuMillis,
      memMb: input.memMb,
      allowCommunity: input.allowCommunity,
      region: input.region ?? null,
      timeoutMs: input.timeoutMs,
      fuelMax: input.fuelMax ?? null,
      idempotent: input.idempotent,
      public: input.public,
      createdBy: call.caller.name,
      now,
    })
    await call.audit(tx, {
      kind: 'function.deployed',
      subject: made.id,
      data: { name: made.name, version: made.version, sha256: made.componentSha256 },
    })
    await call.settle(tx, { function: toFunctionRecord(made) })
    return made
  })
  engine.invoker.changed({ kind: 'function', id: row.id, version: row.version })
  return { function: toFunctionRecord(row) }
})

type Given = { component?: string | undefined; componentSha256?: string | undefined }

/** The contract has it that one of both is there. */
async function componentOf(
  { engine, orgId }: Call,
  { component = '', componentSha256: sha256 }: Given,
): Promise<Buffer | Stored> {
  if (sha256 === undefined) {
    const bytes = decoded(component)
    checkMagic(bytes)
    return bytes
  }
  const sizeBytes = await deployableSize(engine.db, { orgId, sha256 })
  if (sizeBytes !== undefined) return { sha256, sizeBytes }
  // The same words for bytes that another org has: a hash alone tells nothing.
  throw new AppError('NOT_FOUND', `This organization has sent no component ${sha256}`, {
    details: {
      reason: 'NO_SUCH_COMPONENT',
      field: 'componentSha256',
      next: 'Send its bytes to POST /v1/components, then deploy again within 24 hours',
    },
  })
}

/** The bytes of the inline component; its size is looked at before it is decoded. */
function decoded(component: string): Buffer {
  const field = 'component'
  const about = Math.floor(component.length / 4) * 3
  // The last group of base64 may stand for one or two bytes less.
  const bytes = about > COMPONENT_INLINE_MAX + 2 ? undefined : fromBase64(component)
  if (about > COMPONENT_INLINE_MAX + 2 || (bytes && bytes.length > COMPONENT_INLINE_MAX))
    throw new AppError(
      'TOO_LARGE',
      `component has ${formatBytes(bytes?.length ?? about)}; at most ${formatBytes(COMPONENT_INLINE_MAX)} travel inline`,
      { details: { reason: 'COMPONENT_TOO_LARGE', field, bytesMax: COMPONENT_INLINE_MAX } },
    )
  if (!bytes)
    throw new AppError('INVALID', 'component is not base64', {
      details: {
        reason: 'BAD_BASE64',
        field,
        next: 'Send the .wasm file as standard base64 with its padding (RFC 4648, section 4)',
      },
    })
  return bytes
}
