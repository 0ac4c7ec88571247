-- Invocations take an Idempotency-Key, too.

-- A guest's output is any text: jsonb refuses NUL, json keeps what was written.
alter table idempotency_keys alter answer type json using answer::json;

-- A call that acts beyond the database: when its engine died in the middle, nobody knows what became of it, and the key
-- never runs it again.
alter table idempotency_keys add at_most_once boolean;
update idempotency_keys set at_most_once = false;
alter table idempotency_keys alter at_most_once set not null;
