-- Stands in the queue for a reader. hears.lua, seats.lua, and stand.lua as a function, are sent in
-- front.
--
--     KEYS: key, queue, last, roll, seats   ARGV: those of stand.lua
--
-- It returns what stand.lua does. While others read, those who are first in the queue and share are
-- let in, perhaps the member. A seat that was kept for it is given back before, as a reservation
-- would be, and so is that of an attempt of its that this node has refused.
--
-- The roll is called for those before the first who shares, up to 100 of them: their machines may
-- be gone, and the nodes do not know.

queue = KEYS[2]
local roll, window, member, final = KEYS[4], ARGV[1], ARGV[2], ARGV[4]
if call('GET', key) == shared then
	if final == '0' and sits('~' .. member) then
		return {tonumber(ARGV[3]), -1, -1}
	end
	call('ZREM', seats, '~' .. member, ARGV[8] or '')
	if not keep() then call('SET', key, '~' .. member, 'PX', window) end
end
local said = stand()
if call('GET', key) ~= shared then return said end
for _, who in ipairs(call('ZRANGE', queue, 0, 99)) do
	if string.sub(who, -1) == '*' then break end
	local due = call('ZSCORE', roll, who)
	if not due then
		call('ZADD', roll, clock[1] + ARGV[6], who)
		call('PEXPIRE', roll, ARGV[5])
	elseif tonumber(due) <= tonumber(clock[1]) then
		call('ZREM', queue, who)
		call('ZREM', roll, who)
	end
end
admit(window, member)
if sits('~' .. member) then return {said[1], -1, -1} end
local rank = call('ZRANK', queue, member) or 0
return {said[1], rank, rank == 0 and call('PTTL', key) or -1}
