// What a test takes from its environment: tests have no bin that could read it for them.

/** A Postgres where tests may make and drop databases, instead of one they start (script/with-postgres-15). */
export const testDatabaseUrl = (): string | undefined => process.env['CLUTCH_TEST_DATABASE_URL']
