-- Asks whether a reader has a seat, or lets it last for an expiry from now. hears.lua and seats.lua
-- are sent in front.
--
--     KEYS: key [fence], seats   ARGV: value [, expiry ms [, fence expiry ms]]
--
-- It returns what extend.lua does. A reader without a seat has lost it, whoever else reads: that is
-- 0. PEXPIRE comes first, because a node that is out of memory refuses ZADD unless something has
-- been written. The key keeps its time until then, in case ZADD is not allowed.

local held = call('GET', key)
if held and held ~= shared and string.sub(held, 1, 14) ~= '~redlock:turn:' then return -1 end
if held ~= shared or not sits(ARGV[1]) then return 0 end
if ARGV[2] then
	call('PEXPIRE', key, math.max(call('PTTL', key), tonumber(ARGV[2])))
	call('ZADD', seats, now + ARGV[2], ARGV[1])
	keep()
	if ARGV[3] then call('PEXPIRE', KEYS[2], ARGV[3]) end
end
return 1
