-- Engines remember that a name is no function's: a new one must be told, too.
create or replace trigger functions_changed
after insert or update of current_version or delete on functions
for each row execute function tell_function();
