-- Releases many locks at once, as far as nobody queues for them. With 32 locks, a server needs
-- half the time that release.lua takes for them one by one.
--
--     KEYS: key [queue], of each lock   ARGV: value, of each lock
--
-- It returns an array: 1 for each lock whose key it deleted, and null for each that it leaves to
-- release.lua. Of two with the same key and value, it leaves the second.

local call, pcall = redis.call, redis.pcall
local keys = #KEYS / #ARGV
local replies, gone = {}, {}
for i, value in ipairs(ARGV) do
	local key, queue = KEYS[(i - 1) * keys + 1], KEYS[i * keys]
	local done = not gone[key] and pcall('GET', key) == value
		and (keys == 1 or pcall('PTTL', queue) == -2)
	if done then gone[#gone + 1], gone[key] = key, true end
	replies[i] = done and 1
end
if gone[1] then call('DEL', unpack(gone)) end
return replies
