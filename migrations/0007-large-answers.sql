-- What a streamed invocation says has no limit but its time.
alter table invocations alter stdout_bytes type bigint;
