import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { argument, common, docs, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'

/** Throws for anything but on and off: stricli prints the message with the argument's name. */
function onOff(input: string): boolean {
  if (input === 'on' || input === 'true') return true
  if (input === 'off' || input === 'false') return false
  throw new SyntaxError(`expected on or off, not '${input}'`)
}

export const setDraining = buildCommand<CommonFlags, [id: string, draining: boolean], Cli>({
  docs: docs({
    brief: 'Stop or resume new work on a node',
    more: 'A draining node keeps what it runs and receives nothing new.',
    examples: ['ccp nodes set-draining node-a1 on', 'ccp nodes set-draining node-a1 off'],
  }),
  parameters: {
    flags: common,
    positional: {
      kind: 'tuple',
      parameters: [
        argument('node', 'Node id or record id'),
        {
          ...argument('on|off', 'on: no new work; off: new work again', ['on', 'off']),
          parse: onOff,
        },
      ],
    },
  },
  async func({ json, orgId }, id, draining) {
    const org = await resolveOrg(this, orgId)
    const { node } = await (
      await this.api()
    ).compute.nodes.setDraining({ orgId: org, id, draining })
    if (json) return this.out.json({ node })
    this.out.line(
      node.draining
        ? `${node.node_id} is draining: it keeps what it runs and receives nothing new`
        : `${node.node_id} receives new work again`,
    )
  },
})
