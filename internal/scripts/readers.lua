-- Reads who shares the key. hears.lua and seats.lua are sent in front.
--
--     KEYS: key, seats
--
-- It returns the value of each reader, followed by the milliseconds until its seat ends; nothing if
-- readers do not have the key.

local all, list = {}, call('GET', key) == shared and call('ZRANGE', seats, 0, -1, 'WITHSCORES')
for i = 1, list and #list or 0, 2 do
	if string.sub(list[i], 1, 14) ~= '~redlock:turn:' and tonumber(list[i + 1]) > now then
		table.insert(all, list[i])
		table.insert(all, list[i + 1] - now)
	end
end
return all
