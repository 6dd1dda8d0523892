-- Acquires a lock that was handed off: this code, followed by acquire.lua. The last argument is one
-- more, the value of whoever has handed it off, which must be there: what holds that is free. It
-- returns 0 also if there is no key.

local v, old = redis.call('GET', KEYS[1]), table.remove(ARGV)
ARGV.free = v == old
if not ARGV.free and v ~= ARGV[1] then return 0 end
